package collect

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// maxDetailItems bounds the answer to one request.
	maxDetailItems = 10_000
	// maxPartItems and maxPartBytes bound one part of it, well within a DetailPart's 512 KiB.
	maxPartItems = 500
	maxPartBytes = 256 << 10
)

// ErrTooMany says that an answer was cut at its bound.
var ErrTooMany = errors.New("there is more than may be told at once: the rest is left out")

// ErrNotThere says that what was asked for does not exist.
var ErrNotThere = errors.New("there is no such thing")

// Detail reads more about one thing than a report carries and hands it to emit, in parts of at most 256 KiB. Names are those
// of the reports: bytes that are not UTF-8 as \xNN, a backslash as \\. It ends within the section timeout. An error
// wraps ErrNotThere when the thing does not exist, and ErrTooMany when the answer was cut.
func (s *Scanner) Detail(ctx context.Context, request *offrampv1.DetailRequest, emit func([]string) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.SectionTimeout)
	defer cancel()
	out := &detailItems{emit: emit, most: maxDetailItems}
	var err error
	switch detail := request.GetDetail().(type) {
	case *offrampv1.DetailRequest_Chain:
		err = s.rules.chainDetail(ctx, detail.Chain, out)
	case *offrampv1.DetailRequest_Service:
		err = errors.Join(s.serversOf(ctx, detail.Service, out), s.rules.serviceDetail(ctx, detail.Service, out))
	case *offrampv1.DetailRequest_Ipset:
		out.most = maxMembers
		err = membersOf(ctx, s.modules, detail.Ipset, out)
	default:
		err = errors.New("this agent does not know such a detail")
	}
	return errors.Join(err, out.flush())
}

// detailItems collects items into parts.
type detailItems struct {
	emit        func([]string) error
	most        int
	part        []string
	bytes, sent int
}

func (d *detailItems) add(item string) error {
	if d.sent == d.most {
		return ErrTooMany
	}
	if len(d.part) == maxPartItems || d.bytes+len(item) > maxPartBytes {
		if err := d.flush(); err != nil {
			return err
		}
	}
	d.part, d.bytes = append(d.part, item), d.bytes+len(item)
	d.sent++
	return nil
}

func (d *detailItems) flush() error {
	part := d.part
	d.part, d.bytes = nil, 0
	if len(part) == 0 {
		return nil
	}
	return d.emit(part)
}

// unprintable is the reverse of printable.
func unprintable(text string) ([]byte, error) {
	name := make([]byte, 0, len(text))
	for at := 0; at < len(text); at++ {
		switch {
		case text[at] != '\\':
			name = append(name, text[at])
		case len(text) > at+1 && text[at+1] == '\\':
			name = append(name, '\\')
			at++
		case len(text) > at+3 && text[at+1] == 'x':
			value, err := strconv.ParseUint(text[at+2:at+4], 16, 8)
			if err != nil {
				return nil, fmt.Errorf("name %q: %w", text, err)
			}
			name = append(name, byte(value))
			at += 3
		default:
			return nil, fmt.Errorf("name %q: a backslash is written as two", text)
		}
	}
	return name, nil
}

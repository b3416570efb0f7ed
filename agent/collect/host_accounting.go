package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// From linux/netfilter/nfnetlink.h and nfnetlink_acct.h.
	subsystemAccounting = 7
	accountingGet       = 1
	accountingName      = 1

	accountingModule = "nfnetlink_acct"
	// maxAccounting bounds how many objects are counted.
	maxAccounting = 1 << 16
)

// readAccounting counts the nfacct objects by owner. Asking can load the module: it is asked only where it is there, or
// where the kernel cannot load any.
func readAccounting(ctx context.Context, mods *modules, features *kernelModules) ([]*offrampv1.OwnerCount, error) {
	registered, err := mods.nfnetlink()
	if err != nil || !registered {
		return nil, err
	}
	switch features.state(accountingModule) {
	case featureLoaded, featureBuiltIn:
	default:
		canLoad, err := mods.canLoad()
		if err != nil {
			return nil, err
		}
		// A module without parameters that is built in has no folder in /sys/module, and asking for it may load another thing.
		if canLoad {
			return nil, nil
		}
	}
	counts := ownerCounter{}
	if _, _, err := repeat(ctx, func(ctx context.Context) (struct{}, error) {
		clear(counts)
		return struct{}{}, dumpAccounting(ctx, counts)
	}); err != nil {
		return nil, err
	}
	return counts.counts(), nil
}

func dumpAccounting(ctx context.Context, counts ownerCounter) error {
	socket, err := openSocket(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer socket.close()
	request := nl.NewNetlinkRequest(subsystemAccounting<<8|accountingGet, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	total := 0
	err = socket.dump(ctx, request, func(message []byte) error {
		if total++; total > maxAccounting {
			return errors.New("there are too many")
		}
		name, err := parseAccounting(message)
		if err == nil {
			counts.add(kubeproxy.NfacctOwner(name))
		}
		return err
	})
	// The subsystem is not there.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil && !errors.Is(err, errTorn) {
		err = fmt.Errorf("list the nfacct objects: %w", err)
	}
	return err
}

// parseAccounting returns the name of the object that a message describes.
func parseAccounting(message []byte) (string, error) {
	const header = 4 // struct nfgenmsg
	if len(message) < header {
		return "", errMalformed
	}
	var name string
	err := eachAttribute(message[header:], func(kind uint16, value []byte) error {
		if kind == accountingName {
			name = string(bytes.TrimRight(value, "\x00"))
		}
		return nil
	})
	return name, err
}

package main

import (
	"encoding/gob"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"offramp.dev/offramp/e2e/lab/wire"
)

// serve answers the lab until the machine is switched off.
func serve(address string) error {
	listener, err := listen(address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		go handle(conn)
	}
}

func handle(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s := &session{dec: gob.NewDecoder(conn), enc: gob.NewEncoder(conn)}
	var request wire.Request
	if err := s.dec.Decode(&request); err != nil {
		return
	}
	exit, err := s.carryOut(request)
	last := wire.Reply{Done: true, Exit: exit}
	if err != nil {
		last.Error = err.Error()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	_ = s.enc.Encode(last)
}

// session is one connection; lock guards enc.
type session struct {
	dec  *gob.Decoder
	enc  *gob.Encoder
	lock sync.Mutex
}

func (s *session) output(stderr bool) wire.Output {
	return wire.Output{Lock: &s.lock, Enc: s.enc, Stderr: stderr}
}

func (s *session) carryOut(request wire.Request) (int, error) {
	switch {
	case request.Run != nil:
		return s.run(*request.Run)
	case request.Put != nil:
		return 0, s.put(*request.Put)
	case request.Get != nil:
		return 0, s.get(*request.Get)
	case request.Account != nil:
		return 0, inGuest(func() error { return account(request.Account) })
	default:
		return 0, fmt.Errorf("an empty request")
	}
}

func (s *session) put(p wire.Put) error {
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", p.Path, err)
	}
	file, err := os.OpenFile(p.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, p.Mode)
	if err != nil {
		return fmt.Errorf("creating a file: %w", err)
	}
	if err := wire.ReceiveChunks(s.dec, file); err != nil {
		_ = file.Close()
		return fmt.Errorf("writing %s: %w", p.Path, err)
	}
	return file.Close()
}

func (s *session) get(g wire.Get) error {
	file, err := os.Open(g.Path)
	if err != nil {
		return fmt.Errorf("opening a file: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := io.Copy(s.output(false), file); err != nil {
		return fmt.Errorf("reading %s: %w", g.Path, err)
	}
	return nil
}

package collect

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// protocolNetfilter is NETLINK_NETFILTER, the netlink protocol of nfnetlink.
const protocolNetfilter = "12"

// feature is a part of the kernel that asking about can load: the kernel calls request_module for an nfnetlink subsystem
// nobody registered yet, and for the netlink protocol itself (net/netfilter/nfnetlink.c, net/netlink/af_netlink.c).
type feature uint8

const (
	featureNFTables feature = iota
	featureIPSet
)

// names: module is what the feature is called below /sys/module. symbol is a function that the feature exports to other modules, which is in
// kallsyms of every kernel that has it, since neither inlining nor link-time optimisation can rename it.
func (f feature) names() (module, symbol string) {
	switch f {
	case featureNFTables:
		return "nf_tables", "nft_register_expr"
	case featureIPSet:
		return "ip_set", "ip_set_type_register"
	default:
		return "", ""
	}
}

// modules tells what the kernel has, by looking at files alone. Safe for use by several goroutines.
type modules struct {
	host Host

	mu sync.Mutex
	// builtIn is nil until kallsyms was read. What is built in stays so, and the file is some ten megabytes long.
	builtIn map[feature]bool
}

func newModules(host Host) *modules { return &modules{host: host} }

// loaded reports whether the kernel can be asked about a feature of nfnetlink without loading anything: false means that
// it certainly is not there, an error that it cannot be told. True promises the feature only on kernels that can load
// modules; where none can be loaded, asking is harmless, and the asker takes "not supported" (EPROTONOSUPPORT for the
// socket, EINVAL or EOPNOTSUPP for the request) for absent.
func (m *modules) loaded(f feature) (bool, error) {
	module, _ := f.names()
	inSight, statErr := exists(filepath.Join(m.host.Sys, "module", module))
	if inSight {
		return true, nil // with nfnetlink, whose functions both modules are linked to; its list of sockets may be long
	}
	registered, err := m.nfnetlink()
	if err != nil || !registered {
		return false, err
	}
	if statErr != nil {
		return false, statErr
	}
	canLoad, err := m.canLoad()
	if err != nil || !canLoad {
		return err == nil, err
	}
	builtIn, err := m.isBuiltIn(f)
	if err != nil {
		return false, fmt.Errorf("looking for %s among what is built into the kernel: %w", module, err)
	}
	return builtIn, nil
}

func (m *modules) isBuiltIn(f feature) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.builtIn == nil {
		found, err := findBuiltIn(m.host, featureNFTables, featureIPSet)
		if err != nil {
			return false, err
		}
		m.builtIn = found
	}
	return m.builtIn[f], nil
}

// nfnetlink reports whether nfnetlink is there: its kernel socket is then listed in every network namespace.
func (m *modules) nfnetlink() (bool, error) {
	list, err := os.ReadFile(filepath.Join(m.host.Proc, "net/netlink"))
	if err != nil {
		return false, fmt.Errorf("looking for nfnetlink: %w", err)
	}
	if !bytes.HasPrefix(list, []byte("sk ")) {
		return false, errors.New("looking for nfnetlink: the list of netlink sockets does not begin with its heading")
	}
	for line := range bytes.Lines(list) {
		if fields := bytes.Fields(line); len(fields) > 1 && string(fields[1]) == protocolNetfilter {
			return true, nil
		}
	}
	return false, nil
}

// canLoad reports whether this kernel supports modules at all (CONFIG_MODULES).
func (m *modules) canLoad() (bool, error) {
	found, err := exists(filepath.Join(m.host.Proc, "modules"))
	if err != nil || found {
		return found, err
	}
	// A proc file system that shows processes only (subset=pid) lacks the file too, and then says nothing.
	if found, err := exists(filepath.Join(m.host.Proc, "version")); err != nil || !found {
		return false, errors.Join(errors.New("the proc file system is not complete"), err)
	}
	return false, nil
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// findBuiltIn tells which features' symbols kallsyms lists as the kernel's own.
func findBuiltIn(host Host, features ...feature) (map[feature]bool, error) {
	file, err := os.Open(filepath.Join(host.Proc, "kallsyms"))
	if err != nil {
		return nil, err
	}
	found, err := scanSymbols(file, features)
	return found, errors.Join(err, file.Close())
}

// scanSymbols reads lines "ADDRESS TYPE NAME", which for the symbol of a module end in "\t[MODULE]".
func scanSymbols(symbols io.Reader, features []feature) (map[feature]bool, error) {
	wanted := make(map[string]feature, len(features))
	for _, f := range features {
		_, symbol := f.names()
		wanted[symbol] = f
	}
	found := make(map[feature]bool, len(features))
	lines, scanner := 0, bufio.NewScanner(symbols)
	for scanner.Scan() {
		lines++
		name := scanner.Bytes()
		name = name[bytes.LastIndexByte(name, ' ')+1:]
		if f, ok := wanted[string(name)]; ok {
			found[f] = true
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	if lines == 0 {
		return nil, errors.New("no symbols are listed")
	}
	return found, nil
}

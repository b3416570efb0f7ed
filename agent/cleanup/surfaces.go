package cleanup

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// surfaces are the ways into the kernel that a run has opened. Each is opened when the first operation needs it: that one
// of them is missing keeps no other from being cleaned.
type surfaces struct {
	routes  *netlink.Handle
	sources *sources
	ipvs    *ipvsHandle
	sets    *ipsets
}

func (s *surfaces) openRoutes() (*netlink.Handle, error) {
	if s.routes == nil {
		handle, err := openRoute()
		if err != nil {
			return nil, err
		}
		s.routes = handle
	}
	return s.routes, nil
}

func (s *surfaces) openSources() (*sources, error) {
	if s.sources == nil {
		handle, err := s.openRoutes()
		if err != nil {
			return nil, err
		}
		if s.sources, err = openSources(handle); err != nil {
			return nil, err
		}
	}
	return s.sources, nil
}

func (s *surfaces) openIPVS(proc string) (*ipvsHandle, error) {
	if s.ipvs == nil {
		handle, err := openIPVS(proc)
		if err != nil {
			return nil, err
		}
		s.ipvs = handle
	}
	return s.ipvs, nil
}

func (s *surfaces) openSets() (*ipsets, error) {
	if s.sets == nil {
		sets, err := openIPSets()
		if err != nil {
			return nil, err
		}
		s.sets = sets
	}
	return s.sets, nil
}

func (s *surfaces) close() {
	if s.routes != nil {
		s.routes.Close()
	}
	if s.ipvs != nil {
		s.ipvs.close()
	}
	if s.sets != nil {
		s.sets.close()
	}
}

// isGone tells that what an operation was to remove cannot be there.
func isGone(err error) bool { return errors.Is(err, errNoIPVS) || errors.Is(err, errNoTable) }

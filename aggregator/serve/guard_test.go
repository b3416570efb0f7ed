package serve

import (
	"slices"
	"testing"

	"offramp.dev/offramp/aggregator/auth"
)

// Whatever this server offers, somebody has said who may call it. Which callers get in is tested in the package auth.
func TestEveryMethodHasItsCallers(t *testing.T) {
	l := &lab{t: t}
	server := newServer(Config{Store: l.newStore(), Log: quiet()}, short())
	listed := auth.Methods()
	for service, info := range server.grpc.GetServiceInfo() {
		for _, method := range info.Methods {
			if name := "/" + service + "/" + method.Name; !slices.Contains(listed, name) {
				t.Errorf("the table of aggregator/auth has no %s: nobody could call it", name)
			}
		}
	}
}

package publish

import (
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// complaints logs what does not work when it begins and when it ends, and not each time.
type complaints struct {
	log *slog.Logger

	mu sync.Mutex
	// last is what of a thing did not work last, and why, as the API server classifies it: the texts name nodes and ports, and differ each time.
	last map[string]string
}

// noReason is that of an error that is not the API server's.
const noReason = "no answer"

// about notes how something went: doing is which step of it failed.
func (c *complaints) about(what, doing string, err error) {
	reason := ""
	if err != nil {
		if reason = string(apierrors.ReasonForError(err)); reason == "" {
			reason = noReason
		}
		reason = doing + ": " + reason
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[what] == reason {
		return
	}
	c.last[what] = reason
	if err != nil {
		c.log.Warn("writing to Kubernetes does not work", "what", what, "error", err)
		return
	}
	c.log.Info("writing to Kubernetes works again", "what", what)
}

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
	// last is why a thing did not work last, as the API server classifies it: the texts name nodes and ports, and differ each time.
	last map[string]string
}

// noReason is that of an error that is not the API server's.
const noReason = "no answer"

// about notes how something went.
func (c *complaints) about(what string, err error) {
	reason := ""
	if err != nil {
		if reason = string(apierrors.ReasonForError(err)); reason == "" {
			reason = noReason
		}
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

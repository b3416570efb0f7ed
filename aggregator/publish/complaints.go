package publish

import "log/slog"

// complaints logs what does not work when it begins and when it ends, and not each time. It is for one goroutine.
type complaints struct {
	log  *slog.Logger
	last map[string]string
}

// about notes how something went.
func (c *complaints) about(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if c.last[what] == text {
		return
	}
	c.last[what] = text
	if err != nil {
		c.log.Warn("writing to Kubernetes does not work", "what", what, "error", err)
		return
	}
	c.log.Info("writing to Kubernetes works again", "what", what)
}

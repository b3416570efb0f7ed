package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// outcome is what a run on one kernel came to.
type outcome struct {
	said bytes.Buffer
	code int
	err  error
	took time.Duration
	done chan struct{}
}

// inOrder runs something for each kernel, some at a time, and writes what each had to say in the order of the kernels, as
// soon as it is complete, each after a line "# kernel VERSION", which e2e/states goes by. It returns the first exit status that is not 0, or the first error.
func inOrder(w io.Writer, kernels []string, parallel int, run func(kernel string, out io.Writer) (int, error)) (code int, err error) {
	if len(kernels) == 1 {
		_, _ = fmt.Fprintf(w, "# kernel %s\n", kernels[0])
		return run(kernels[0], w) // as it comes
	}
	outcomes := make([]*outcome, len(kernels))
	places := make(chan struct{}, parallel)
	var all sync.WaitGroup
	defer all.Wait()
	for i, kernel := range kernels {
		o := &outcome{done: make(chan struct{})}
		outcomes[i] = o
		all.Go(func() {
			defer close(o.done)
			places <- struct{}{}
			defer func() { <-places }()
			began := time.Now()
			o.code, o.err = run(kernel, &o.said)
			o.took = time.Since(began)
		})
	}
	for i, o := range outcomes {
		<-o.done
		_, _ = fmt.Fprintf(w, "# kernel %s (%s)\n%s", kernels[i], o.took.Round(time.Second), o.said.Bytes())
		if err == nil {
			err = o.err
		}
		if code == 0 {
			code = o.code
		}
	}
	return code, err
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// getLimit is what an answer may take.
const getLimit = 10 * time.Second

// get prints what url answers. A status other than 200 is an error, with the answer in it.
func get(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, getLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	_, err = out.Write(body)
	return err
}

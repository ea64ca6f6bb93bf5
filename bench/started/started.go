package started

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// within is how long a process may take.
const within = time.Minute

// Answers waits until an address answers with 200.
func Answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, err)
		}
	}
}

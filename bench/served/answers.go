package served

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// answersWithin says how long a server may take until it answers.
const answersWithin = time.Minute

// Answers waits until an address answers with 200.
func Answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
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

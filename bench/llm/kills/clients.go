package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"inferplan/testkit/llm/fake"
)

// clients insist on the answers to their requests. Of three, one waits for the whole
// answer, one streams it, and one goes away once it has an id and asks for that later.
type clients struct {
	addresses []string
	http      *http.Client
	outcomes  []outcome
	sent      atomic.Int64
	answered  atomic.Int64
	done      chan struct{}
}

// outcome is a request as a client has seen it.
type outcome struct {
	ids   map[string]bool
	text  string
	sends int
	pause time.Duration // longest of a stream under way
}

const atOnce = 48

func newClients(addresses []string, requests int) *clients {
	return &clients{addresses: addresses, outcomes: make([]outcome, requests), done: make(chan struct{}),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce, ResponseHeaderTimeout: time.Minute}}}
}

func prompt(i int) string { return fmt.Sprint("request ", i) }
func tokens(i int) int    { return 20 + i%20 }

// run has all requests answered.
func (c *clients) run(ctx context.Context) {
	defer close(c.done)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range c.outcomes {
		group.Go(func() error {
			c.insist(ctx, i)
			c.answered.Add(1)
			return nil
		})
		c.sent.Add(1)
	}
	_ = group.Wait() // insist does not fail
}

// insist asks until there is an answer.
func (c *clients) insist(ctx context.Context, i int) {
	o := &c.outcomes[i]
	o.ids = map[string]bool{}
	for try := 0; o.text == "" && ctx.Err() == nil; try++ {
		address := c.addresses[(i+try)%len(c.addresses)]
		var err error
		if len(o.ids) > 0 && i%3 == 2 {
			for id := range o.ids {
				o.text, err = c.find(ctx, address, id)
			}
		} else {
			o.sends++
			err = c.send(ctx, address, i, o)
		}
		if err != nil || o.text == "" {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// completion has the fields that are read of an answer.
type completion struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Choices []struct {
		Text string `json:"text"`
	} `json:"choices"`
}

func (c *completion) text() string {
	if len(c.Choices) == 0 {
		return ""
	}
	return c.Choices[0].Text
}

// call sends a request, and a key by which the server knows it again if it has a body.
func (c *clients) call(ctx context.Context, method, url string, body []byte, key string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	return c.http.Do(req)
}

// send sends a request.
func (c *clients) send(ctx context.Context, address string, i int, o *outcome) error {
	body := fmt.Appendf(nil, `{"model":%q,"prompt":%q,"max_tokens":%d,"stream":%t}`, model, prompt(i), tokens(i), i%3 > 0)
	resp, err := c.call(ctx, http.MethodPost, address+"/v1/completions", body, fmt.Sprint("key-", i))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("X-Request-Id"); id != "" {
		o.ids[id] = true
	}
	switch {
	case resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusInternalServerError:
		o.text = fmt.Sprint("status ", resp.StatusCode) // an end that stays
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("status %d", resp.StatusCode)
	case i%3 == 0:
		a := &completion{}
		err = json.NewDecoder(resp.Body).Decode(a)
		o.text = a.text()
	case i%3 == 1:
		o.text, err = o.streamed(resp.Body)
	}
	return err
}

// streamed is the text of a whole stream. Its longest pause counts from the first piece.
func (o *outcome) streamed(r io.Reader) (string, error) {
	var text strings.Builder
	var last time.Time
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		now := time.Now()
		if !last.IsZero() {
			o.pause = max(o.pause, now.Sub(last))
		}
		last = now
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return text.String(), nil
		}
		a := &completion{}
		if ok && json.Unmarshal([]byte(data), a) == nil {
			text.WriteString(a.text())
		}
	}
	return "", errors.Join(errors.New("the stream broke off"), lines.Err())
}

// find asks for a request by its id. If it has not ended, the text is empty.
func (c *clients) find(ctx context.Context, address, id string) (string, error) {
	resp, err := c.call(ctx, http.MethodGet, address+"/v1/completions/"+id, nil, "")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	a := &completion{}
	switch err := json.NewDecoder(resp.Body).Decode(a); {
	case err != nil:
		return "", err
	case a.Status == "failed" || a.Status == "cancelled":
		return "it has " + a.Status, nil
	case a.Status != "completed":
		return "", nil
	}
	return a.text(), nil
}

// tally counts the outcomes of the requests.
type tally struct {
	wrong        []string
	again, later int // requests that were sent more than once, and those whose clients went away
	pause        time.Duration
}

// tally holds the answers against those of undisturbed runs, and asks for each by its id.
func (c *clients) tally(ctx context.Context) (t tally) {
	seen := map[string]int{}
	for i := range c.outcomes {
		o, want := &c.outcomes[i], fake.Text(model, prompt(i), tokens(i))
		problem := ""
		if o.text != want {
			problem = fmt.Sprintf("the text is %q, expected %q", o.text, want)
		}
		if len(o.ids) != 1 {
			problem = fmt.Sprintf("%d ids", len(o.ids))
		}
		for id := range o.ids {
			if other, twice := seen[id]; twice {
				problem = fmt.Sprintf("the id of request %d", other)
			}
			seen[id] = i
			text, err := "", error(nil)
			for range 50 {
				if text, err = c.find(ctx, c.addresses[i%len(c.addresses)], id); err == nil && text != "" {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil || text != want {
				problem = fmt.Sprintf("by its id it is %q, expected %q (%v)", text, want, err)
			}
		}
		if problem != "" {
			t.wrong = append(t.wrong, fmt.Sprintf("request %d: %s", i, problem))
		}
		t.pause = max(t.pause, o.pause)
		if o.sends > 1 {
			t.again++
		}
		if i%3 == 2 {
			t.later++
		}
	}
	return t
}

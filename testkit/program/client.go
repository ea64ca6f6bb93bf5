package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	server "inferplan/executor/calls"
	"inferplan/formats/calls"
)

// Client asks a server that runs workflows as code.
type Client struct {
	URL  string // of the server, without the path
	HTTP *http.Client
}

// Func is a workflow as code. What it returns is the answer to the request.
type Func func(s *Session) (calls.Outputs, error)

// mostAnswer bounds the answer to a question, in bytes.
const mostAnswer = 64 << 20

// wait is how long one question for a result waits.
const wait = 20 * time.Second

// Run runs a program as a request of an application. The request is ended when the
// program has returned, whatever it returned.
func (c *Client) Run(ctx context.Context, open calls.Open, program Func) (calls.Outputs, error) {
	var opened calls.OpenReply
	if err := c.ask(ctx, http.MethodPost, calls.Path, open, &opened); err != nil {
		return nil, fmt.Errorf("opening a request: %w", err)
	}
	s := &Session{client: c, ctx: ctx, path: calls.Path + "/" + opened.Request}
	answer, err := program(s)
	// The server hears of the end also where the caller has gone.
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if e := c.ask(ended, http.MethodDelete, s.path, nil, nil); err == nil && e != nil {
		err = fmt.Errorf("ending the request: %w", e)
	}
	return answer, err
}

// Session is a request under way. One goroutine uses it.
type Session struct {
	client *Client
	ctx    context.Context // of the request
	path   string
}

// Enqueue asks for a task, and does not wait for it.
func (s *Session) Enqueue(c calls.Call) (calls.Handle, error) {
	var out calls.EnqueueReply
	if err := s.client.ask(s.ctx, http.MethodPost, s.path+"/tasks", calls.Enqueue{Tasks: []calls.Call{c}}, &out); err != nil {
		return "", fmt.Errorf("enqueueing a task: %w", err)
	}
	if len(out.Tasks) != 1 {
		return "", fmt.Errorf("enqueueing a task: %d handles came back", len(out.Tasks))
	}
	return out.Tasks[0], nil
}

// Wait waits until tasks have ended. The first that failed is the error.
func (s *Session) Wait(tasks ...calls.Handle) error {
	for _, t := range tasks {
		if _, err := s.Result(t); err != nil {
			return err
		}
	}
	return nil
}

// Result waits for a task and returns its outputs.
func (s *Session) Result(t calls.Handle) (calls.Outputs, error) {
	for {
		var r calls.Result
		if err := s.client.ask(s.ctx, http.MethodGet, s.task(t)+"?wait="+wait.String(), nil, &r); err != nil {
			return nil, fmt.Errorf("waiting for task %s: %w", t, err)
		}
		if r.State != calls.StatusRunning {
			return r.Outputs, ended(&r)
		}
	}
}

func (s *Session) task(t calls.Handle) string { return s.path + "/tasks/" + string(t) }

// ended is the error of a task that has failed.
func ended(r *calls.Result) error {
	if r.State == calls.StatusFailed {
		return fmt.Errorf("task %s: %s", r.Task, r.Error)
	}
	return nil
}

// Stream waits for a task's end as an event.
func (s *Session) Stream(t calls.Handle) (*calls.Result, error) {
	res, err := s.client.send(s.ctx, http.MethodGet, s.task(t)+"/stream", nil)
	if err != nil {
		return nil, fmt.Errorf("streaming task %s: %w", t, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("streaming task %s: %w", t, err)
	}
	data, ok := strings.CutPrefix(string(text), "event: "+calls.ResultEvent+"\ndata: ")
	if !ok {
		return nil, fmt.Errorf("streaming task %s: %w", t, calls.ErrEnded)
	}
	r := &calls.Result{}
	return r, errors.Join(json.Unmarshal([]byte(data), r), ended(r))
}

// ask sends a message and reads the answer, unless into is nil.
func (c *Client) ask(ctx context.Context, method, path string, message, into any) error {
	res, err := c.send(ctx, method, path, message)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if into == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(res.Body, mostAnswer)).Decode(into)
}

// send sends a message. An answer that is a failure is an error.
func (c *Client) send(ctx context.Context, method, path string, message any) (*http.Response, error) {
	var body io.Reader
	if message != nil {
		data, err := calls.Encode(message)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, failure(res)
}

// failure is the error of an answer.
func failure(res *http.Response) error {
	var f calls.Failure
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&f); err != nil || f.Error == "" {
		f.Error = res.Status
	}
	switch res.StatusCode {
	case http.StatusConflict:
		return fmt.Errorf("%s: %w", f.Error, calls.ErrEnded)
	case http.StatusTooManyRequests:
		retry, _ := time.ParseDuration(res.Header.Get("Retry-After") + "s")
		return &server.RefusedError{Reason: f.Reason, RetryAfter: retry}
	}
	return errors.New(f.Error)
}

package completions

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"inferplan/executor/httplimit"
)

// batchLine is a line of an input file.
type batchLine struct {
	ID     string          `json:"custom_id"`
	Method string          `json:"method"`
	URL    string          `json:"url"`
	Body   json.RawMessage `json:"body"`
}

// forEachLine calls handleLine for each line of the input that is not empty, until it returns an error. Lines count
// from 0. A line that is too long is nil, and the last.
func (b *batch) lines(ctx context.Context, each func(n int, line []byte) error) error {
	in := bufio.NewScanner(&content{store: b.front.opt.Store, ctx: ctx, id: b.state.Input})
	in.Buffer(make([]byte, 64<<10), int(b.front.opt.MaxBodyBytes)+64<<10)
	n := 0
	for in.Scan() {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := each(n, line); err != nil {
			return err
		}
		n++
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return each(n, nil)
	}
	return in.Err()
}

// parseLine reads and checks a line.
func (b *batch) question(line []byte) (*batchLine, *question, *httplimit.Error) {
	if line == nil {
		return nil, nil, httplimit.TooLarge("", "the line has more than %d bytes", b.front.opt.MaxBodyBytes)
	}
	l := &batchLine{}
	if err := json.Unmarshal(line, l); err != nil {
		return nil, nil, httplimit.Invalid("", "the line is not a JSON object of a request: %v", err)
	}
	if l.ID == "" || len(l.ID) > longestName {
		return nil, nil, httplimit.Invalid("custom_id", "expected 1 to %d bytes", longestName)
	}
	if l.Method != "POST" || l.URL != b.state.Endpoint {
		return nil, nil, httplimit.Invalid("url", "found %s %s, expected POST %s", httplimit.Clip(l.Method), httplimit.Clip(l.URL), b.state.Endpoint)
	}
	q, err := decode(l.Body, b.state.Endpoint == "/v1/chat/completions")
	if err == nil && q.stream {
		err = httplimit.Invalid("body.stream", "a batch has no streams")
	}
	return l, q, err
}

// maxReportedErrors bounds the errors of an input that clients see.
const mostErrors = 20

// validateInput checks all lines of the input. It returns the number of lines and their errors.
func (b *batch) validate(ctx context.Context) (total int, bad []batchError, err error) {
	seen := map[string]bool{}
	note := func(line int, code, msg string, param string) {
		if len(bad) < mostErrors {
			e := batchError{Code: code, Message: msg, Line: &line}
			if param != "" {
				e.Param = &param
			}
			bad = append(bad, e)
		}
	}
	err = b.lines(ctx, func(n int, line []byte) error {
		total++
		if total > b.front.opt.MaxLines {
			note(n+1, "too_many_lines", fmt.Sprintf("a batch has at most %d requests", b.front.opt.MaxLines), "")
			return errStop
		}
		l, q, refusal := b.question(line)
		if refusal == nil && seen[l.ID] {
			refusal = httplimit.Invalid("custom_id", "%q was used before", httplimit.Clip(l.ID))
		}
		if refusal == nil {
			seen[l.ID] = true
			var err error
			if _, err = b.record(n, q); err != nil && !errors.As(err, &refusal) {
				return err
			}
		}
		if refusal != nil {
			note(n+1, refusal.Reason, refusal.Error(), refusal.Field)
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	if total == 0 && err == nil {
		note(0, "empty_file", "the file has no requests", "")
	}
	return total, bad, err
}

// errTooManyLines ends the reading of an input.
var errStop = errors.New("no further lines")

// newRecord makes the record of a line. Its class is that of the line, else that of the batch, else the class for
// batches if the model has it.
func (b *batch) record(n int, q *question) (*record, error) {
	set(&q.class, b.state.Class)
	if q.class == "" {
		q.class = batchClass(b.front, q.model)
	}
	rec, err := b.front.record(q, b.state.Owner)
	if err == nil {
		rec.Keep, rec.Batch, rec.Line, rec.Deadline = true, b.state.ID, n, b.state.deadline()
	}
	return rec, err
}

// batchClass returns the class of a model's requests in batches. If it is empty, it is the model's default class.
func batchClass(f *Front, model string) string {
	for _, m := range f.opt.Server.Models() {
		if m.ID == model && m.Classes != nil {
			for _, c := range m.Classes {
				if c == f.opt.BatchClass {
					return c
				}
			}
			return ""
		}
	}
	return f.opt.BatchClass
}

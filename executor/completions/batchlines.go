package completions

import (
	"bufio"
	"bytes"
	"cmp"
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

// forEachLine calls handleLine for each line of the batch's input file that is not empty, until it returns an error,
// which forEachLine returns. n counts these lines from 0. A line that is longer than a body may be is passed as nil and
// is the last one, because nothing behind it can be read.
func (b *runningBatch) forEachLine(ctx context.Context, handleLine func(n int, line []byte) error) error {
	in := bufio.NewScanner(&contentReader{store: b.front.opt.Store, ctx: ctx, id: b.state.InputFile})
	in.Buffer(make([]byte, 64<<10), int(b.front.opt.MaxBodyBytes)+64<<10)
	n := 0
	for in.Scan() {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := handleLine(n, line); err != nil {
			return err
		}
		n++
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return handleLine(n, nil)
	}
	return in.Err()
}

// parseLine reads and checks a line of a batch's input, which is one request: its name (custom_id), endpoint and
// body. A nil line was too long. It returns an error for the client if something is wrong.
func (b *runningBatch) parseLine(line []byte) (*batchLine, *parsedRequest, *httplimit.Error) {
	if line == nil {
		return nil, nil, httplimit.TooLarge("", "the line has more than %d bytes", b.front.opt.MaxBodyBytes)
	}
	l := &batchLine{}
	if err := json.Unmarshal(line, l); err != nil {
		return nil, nil, httplimit.Invalid("", "the line is not a JSON object of a request: %v", err)
	}
	if l.ID == "" || len(l.ID) > maxNameBytes {
		return nil, nil, httplimit.Invalid("custom_id", "expected 1 to %d bytes", maxNameBytes)
	}
	if l.Method != "POST" || l.URL != b.state.Endpoint {
		return nil, nil, httplimit.Invalid("url", "found %s %s, expected POST %s", httplimit.Clip(l.Method), httplimit.Clip(l.URL), b.state.Endpoint)
	}
	parsed, err := parseCompletion(l.Body, b.state.Endpoint == "/v1/chat/completions")
	if err == nil && parsed.stream {
		err = httplimit.Invalid("body.stream", "a batch has no streams")
	}
	return l, parsed, err
}

// maxReportedErrors bounds the errors of an input that clients see.
const maxReportedErrors = 20

// validateInput checks all lines of a batch's input before any is submitted. It returns the number of lines and the
// errors of wrong ones, at most maxReportedErrors. err is for failures to read the input.
func (b *runningBatch) validateInput(ctx context.Context) (total int, lineErrors []batchError, err error) {
	seenNames := map[string]bool{}
	noteError := func(line int, code, msg string, param string) {
		if len(lineErrors) < maxReportedErrors {
			e := batchError{Code: code, Message: msg, Line: &line}
			if param != "" {
				e.Param = &param
			}
			lineErrors = append(lineErrors, e)
		}
	}
	err = b.forEachLine(ctx, func(n int, line []byte) error {
		total++
		if total > b.front.opt.MaxBatchLines {
			noteError(n+1, "too_many_lines", fmt.Sprintf("a batch has at most %d requests", b.front.opt.MaxBatchLines), "")
			return errTooManyLines
		}
		l, parsed, refusal := b.parseLine(line)
		if refusal == nil && seenNames[l.ID] {
			refusal = httplimit.Invalid("custom_id", "%q was used before", httplimit.Clip(l.ID))
		}
		if refusal == nil {
			seenNames[l.ID] = true
			var err error
			if _, err = b.newRecord(n, parsed); err != nil && !errors.As(err, &refusal) {
				return err
			}
		}
		if refusal != nil {
			noteError(n+1, refusal.Reason, refusal.Error(), refusal.Field)
		}
		return nil
	})
	if errors.Is(err, errTooManyLines) {
		err = nil
	}
	if total == 0 && err == nil {
		noteError(0, "empty_file", "the file has no requests", "")
	}
	return total, lineErrors, err
}

// errTooManyLines ends the reading of an input.
var errTooManyLines = errors.New("no further lines")

// newRecord makes the record of the n-th line of a batch (counted from 0), by which the request is stored. It belongs to
// the batch's owner and has the batch's deadline. Its SLO class is that of the line, else that of the batch, else the
// class for batches if the model has it. It sets parsed.class to that class.
func (b *runningBatch) newRecord(n int, parsed *parsedRequest) (*requestRecord, error) {
	parsed.class = cmp.Or(parsed.class, b.state.Class)
	if parsed.class == "" {
		parsed.class = batchClass(b.front, parsed.model)
	}
	record, err := b.front.newRecord(parsed, b.state.Owner)
	if err == nil {
		record.Resumable, record.Batch, record.Line, record.Deadline = true, b.state.ID, n, b.state.deadline()
	}
	return record, err
}

// batchClass returns the SLO class of a model's requests in batches: the configured one (Options.BatchClass) unless the
// model has classes and lacks it. Then it returns "", which stands for the model's default class.
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

package llmtrace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
)

// Row is a request.
type Row struct {
	At             time.Duration
	Prompt, Output int
	Model, Class   string
	Session        string
	Cached         int // tokens of the prompt that were sent before; -1: not told
}

// Trace is what a file holds.
type Trace struct {
	Rows  []Row
	Timed bool // it tells when requests came
}

// Options say how a file is read.
type Options struct {
	// Consecutive: the rows of a conversation follow each other, and one whose prompt
	// is shorter than that of the row before begins another (files without sessions).
	Consecutive bool
}

// columns are the names of each column.
var columns = map[string][]string{
	"prompt": {"prompt_tokens", "input_tokens"}, "output": {"output_tokens"}, "model": {"model"}, "class": {"class"},
	"session": {"session", "session_id", "conversation"}, "cached": {"cached_tokens", "prefix_hit_tokens_infinite_cache"},
}

// mostTokens bounds a length.
const mostTokens = 1 << 24

// Read reads a trace.
func Read(f *csvfile.File, o Options) (*Trace, error) {
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for what, names := range columns {
		at[what] = slices.IndexFunc(tab.Header, func(h string) bool { return slices.Contains(names, h) })
	}
	if at["prompt"] < 0 || at["output"] < 0 {
		return nil, &formats.Error{File: f.Name, Line: 1, Column: 1, Found: "the columns " + strings.Join(tab.Header, ","), Expected: "prompt_tokens (or input_tokens) and output_tokens among them, and t_us or t_s where the trace has times"}
	}
	if o.Consecutive && at["session"] >= 0 {
		return nil, tab.Fail(at["session"], "", "a column of sessions", "none where conversations are told by their rows")
	}
	timed, unit := slices.Index(tab.Header, "t_us"), float64(time.Microsecond)
	if timed < 0 {
		timed, unit = slices.Index(tab.Header, "t_s"), float64(time.Second)
	}
	out := &Trace{Timed: timed >= 0}
	conversation := 0
	err = tab.Each(func() error {
		r := Row{Cached: -1}
		var err error
		if r.Prompt, err = tokens(tab, at["prompt"], 1); err != nil {
			return err
		}
		if r.Output, err = tokens(tab, at["output"], 0); err != nil {
			return err
		}
		if i := at["cached"]; i >= 0 {
			if r.Cached, err = tokens(tab, i, 0); err != nil {
				return err
			}
		}
		for what, to := range map[string]*string{"model": &r.Model, "class": &r.Class, "session": &r.Session} {
			if i := at[what]; i >= 0 {
				*to = strings.Clone(strings.TrimSpace(tab.Row[i]))
			}
		}
		last := len(out.Rows) - 1
		if timed >= 0 {
			x, err := strconv.ParseFloat(strings.TrimSpace(tab.Row[timed]), 64)
			if err != nil || !(x >= 0 && x*unit < 1<<62) || last >= 0 && time.Duration(x*unit) < out.Rows[last].At {
				return tab.Cell(timed, "a time of 0 or more, not before that of the row above")
			}
			r.At = time.Duration(x * unit)
		}
		if o.Consecutive {
			if last < 0 || r.Prompt < out.Rows[last].Prompt {
				conversation++
			}
			r.Session = strconv.Itoa(conversation)
		}
		out.Rows = append(out.Rows, r)
		return nil
	})
	if err == nil && len(out.Rows) == 0 {
		err = &formats.Error{File: f.Name, Found: "no request", Expected: "at least one"}
	}
	return out, err
}

func tokens(t *csvfile.Table, at, least int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(t.Row[at]))
	if err != nil || n < least || n > mostTokens {
		return 0, t.Cell(at, fmt.Sprintf("a number of tokens from %d to %d", least, mostTokens))
	}
	return n, nil
}

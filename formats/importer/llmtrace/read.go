package llmtrace

import (
	"strconv"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// Row is a request.
type Row struct {
	At             time.Duration
	Prompt, Output int
	Model, Class   string
	Session        string
	Cached         int // tokens of the prompt that were sent before; -1 if not known
}

// Trace holds the rows of a file.
type Trace struct {
	Rows  []Row
	Timed bool // the rows have times
}

// Options are the options of reading a file.
type Options struct {
	// Consecutive says that the rows of a conversation follow each other, and that a row whose prompt is shorter
	// than the one before begins another conversation (for files without sessions).
	Consecutive bool
}

// Bounds of a length and of a time.
const (
	mostTokens = 1 << 24
	mostTime   = 1 << 61
)

// Read reads a trace.
func Read(f *csvfile.File, o Options) (*Trace, error) {
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	if err := tab.Need("prompt_tokens|input_tokens", "output_tokens"); err != nil {
		return nil, err
	}

	// Find the columns, which have other names in other traces.
	prompt, _ := tab.Column("prompt_tokens", "input_tokens")
	cached, hasCached := tab.Column("cached_tokens", "prefix_hit_tokens_infinite_cache")
	session, hasSession := tab.Column("session", "session_id", "conversation")
	if o.Consecutive && hasSession >= 0 {
		return nil, tab.Fail(hasSession, "", "a column of sessions", "none where conversations are told by their rows")
	}
	timeColumn, timed := tab.Column("t_us", "t_s")

	// Read the rows. With consecutive conversations, a prompt that is shorter than the one above begins another.
	out := &Trace{Timed: timed >= 0}
	conversation := 0
	err = tab.Each(func() error {
		r := Row{
			Prompt: tab.Whole(prompt, 1, mostTokens), Output: tab.Whole("output_tokens", 0, mostTokens), Cached: -1,
			Model: tab.Text("model"), Class: tab.Text("class"), Session: tab.Text(session),
		}
		if hasCached >= 0 {
			r.Cached = tab.Whole(cached, 0, mostTokens)
		}
		last := len(out.Rows) - 1
		if timed >= 0 {
			r.At = tab.Time(timeColumn, mostTime)
			if last >= 0 && r.At < out.Rows[last].At {
				tab.Wrong(tab.Cell(timed, "a time not before that of the row above"))
			}
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
		err = &document.Error{File: f.Name, Found: "no request", Expected: "at least one"}
	}
	return out, err
}

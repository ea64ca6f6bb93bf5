package workload

import (
	"strconv"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// Row is a request.
type Row struct {
	ArrivedAt      time.Duration
	Prompt, Output int
	Model, Class   string
	Session        string
	CachedTokens   int // tokens of the prompt that were sent before; -1 if not known
}

// Trace holds the rows of a file.
type Trace struct {
	Rows     []Row
	HasTimes bool // the rows have times
}

// Options are the options of reading a file.
type Options struct {
	// Consecutive says that the rows of a conversation follow each other, and that a row whose prompt is shorter
	// than the one before begins another conversation (for files without sessions).
	Consecutive bool
}

// Bounds of a length and of a time.
const (
	maxTokens = 1 << 24
	maxTime   = 1 << 61
)

// Read reads a trace of LLM requests from a CSV file, one a row, with the lengths of prompt and answer. With
// o.Consecutive the rows of a conversation follow each other.
func Read(f *csvfile.File, o Options) (*Trace, error) {
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	if err := tab.Require("prompt_tokens|input_tokens", "output_tokens"); err != nil {
		return nil, err
	}

	// Find the columns, which have other names in other traces.
	prompt, _ := tab.Column("prompt_tokens", "input_tokens")
	cachedColumn, hasCached := tab.Column("cached_tokens", "prefix_hit_tokens_infinite_cache")
	session, hasSession := tab.Column("session", "session_id", "conversation")
	if o.Consecutive && hasSession >= 0 {
		return nil, tab.Fail(hasSession, "", "a column of sessions", "none where conversations are told by their rows")
	}
	timeColumn, timedRows := tab.Column("t_us", "t_s")

	// Read the rows. With consecutive conversations, a prompt that is shorter than the one above begins another.
	trace := &Trace{HasTimes: timedRows >= 0}
	conversation := 0
	err = tab.EachRow(func() error {
		r := Row{
			Prompt: tab.WholeNumber(prompt, 1, maxTokens), Output: tab.WholeNumber("output_tokens", 0, maxTokens), CachedTokens: -1,
			Model: tab.Text("model"), Class: tab.Text("class"), Session: tab.Text(session),
		}
		if hasCached >= 0 {
			r.CachedTokens = tab.WholeNumber(cachedColumn, 0, maxTokens)
		}
		lastRow := len(trace.Rows) - 1
		if timedRows >= 0 {
			r.ArrivedAt = tab.Time(timeColumn, maxTime)
			if lastRow >= 0 && r.ArrivedAt < trace.Rows[lastRow].ArrivedAt {
				tab.SetError(tab.CellError(timedRows, "a time not before that of the row above"))
			}
		}
		if o.Consecutive {
			if lastRow < 0 || r.Prompt < trace.Rows[lastRow].Prompt {
				conversation++
			}
			r.Session = strconv.Itoa(conversation)
		}
		trace.Rows = append(trace.Rows, r)
		return nil
	})
	if err == nil && len(trace.Rows) == 0 {
		err = &document.Error{File: f.Name, Found: "no request", Expected: "at least one"}
	}
	return trace, err
}

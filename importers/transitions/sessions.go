package transitions

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// ReadSessions reads a request trace of agents: CSV with a header, with t_us or t_s, session and model. It may
// have application, end_us or end_s, id, and reads: the ids of the calls that a call reads, separated by spaces.
// The calls of a session make a request. A call that begins more than gap after all earlier ones have ended begins
// another request. A call without an end ends when the next call of its session begins.
func ReadSessions(f *csvfile.File, application string, gap time.Duration, recorder *Recorder) (requests int, err error) {
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return 0, err
	}
	if err := tab.Require("t_us|t_s", "session", "model"); err != nil {
		return 0, err
	}
	s := sessionRows{Table: tab, calls: map[string][]Call{}, apps: map[string]string{}}
	s.startColumn, _ = tab.Column("t_us", "t_s")
	s.endColumn, s.endIndex = tab.Column("end_us", "end_s")
	_, s.readsIndex = tab.Column("reads")
	if err := tab.EachRow(s.addRow); err != nil {
		return 0, err
	}
	for _, id := range s.sessionOrder {
		for _, list := range splitRequests(s.calls[id], gap) {
			if recorder.addCalls(cmp.Or(s.apps[id], application, "sessions"), "of the session "+document.Quote(id), list) {
				requests++
			}
		}
	}
	if requests == 0 {
		return 0, &document.Error{File: f.Name, Found: "no request of calls", Expected: "at least one", Hint: recorder.Note()}
	}
	return requests, nil
}

// sessionRows is a table of calls.
type sessionRows struct {
	*csvfile.Table
	startColumn, endColumn string // columns of times
	endIndex, readsIndex   int    // indices of columns, -1 without them
	calls                  map[string][]Call
	apps                   map[string]string
	sessionOrder           []string
}

// maxTime bounds a time.
const maxTime = 1 << 61

// unknownEnd stands for an end that was not recorded.
const unknownEnd = -1

// addRow adds the call in the current row to the calls of its session.
func (s *sessionRows) addRow() error {
	c := Call{Model: s.Text("model"), Start: int64(s.Time(s.startColumn, maxTime)), EndedAt: unknownEnd, ID: s.Text("id")}
	session := s.Text("session")
	if c.Model == "" || session == "" {
		_, model := s.Column("model")
		return s.CellError(model, "a model, and a session")
	}
	if s.endIndex >= 0 && s.Row[s.endIndex] != "" {
		if c.EndedAt = int64(s.Time(s.endColumn, maxTime)); c.EndedAt < c.Start {
			return s.CellError(s.endIndex, "an end that is not before the start")
		}
	}
	if s.readsIndex >= 0 {
		c.Reads = append([]string{}, strings.Fields(s.Row[s.readsIndex])...)
	}
	if application := s.Text("application"); application != "" {
		s.apps[session] = application
	}
	if s.calls[session] == nil {
		s.sessionOrder = append(s.sessionOrder, session)
	}
	s.calls[session] = append(s.calls[session], c)
	return nil
}

// splitRequests returns the calls of a session in requests: a call that begins more than gap after all earlier ones
// have ended begins another request. A call without an end gets one. Times are in nanoseconds.
func splitRequests(list []Call, gap time.Duration) (out [][]Call) {
	slices.SortStableFunc(list, func(a, b Call) int { return cmp.Compare(a.Start, b.Start) })
	for i := range list {
		if list[i].EndedAt != unknownEnd {
			continue
		}
		if list[i].EndedAt = list[i].Start; i+1 < len(list) && list[i+1].Start-list[i].Start <= int64(gap) {
			list[i].EndedAt = list[i+1].Start
		}
	}
	lastEnd := int64(0)
	for i := range list {
		if i == 0 || list[i].Start-lastEnd > int64(gap) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], list[i])
		lastEnd = max(lastEnd, list[i].EndedAt)
	}
	return out
}

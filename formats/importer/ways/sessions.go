package ways

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
func ReadSessions(f *csvfile.File, application string, gap time.Duration, into *Recorder) (requests int, err error) {
	tab, err := csvfile.NewTable(f)
	if err != nil {
		return 0, err
	}
	if err := tab.Need("t_us|t_s", "session", "model"); err != nil {
		return 0, err
	}
	s := sessions{Table: tab, calls: map[string][]Call{}, apps: map[string]string{}}
	s.start, _ = tab.Column("t_us", "t_s")
	s.end, s.endAt = tab.Column("end_us", "end_s")
	_, s.readsAt = tab.Column("reads")
	if err := tab.Each(s.take); err != nil {
		return 0, err
	}
	for _, id := range s.order {
		for _, list := range split(s.calls[id], gap) {
			requests++
			into.Add(cmp.Or(s.apps[id], application, "sessions"), Way(list))
		}
	}
	if requests == 0 {
		return 0, &document.Error{File: f.Name, Found: "no call", Expected: "at least one"}
	}
	return requests, nil
}

// sessionRows is a table of calls.
type sessions struct {
	*csvfile.Table
	start, end     string // columns of times
	endAt, readsAt int    // indices of columns, -1 without them
	calls          map[string][]Call
	apps           map[string]string
	order          []string
}

// mostTime bounds a time.
const mostTime = 1 << 61

// unknownEnd stands for an end that was not recorded.
const unknownEnd = -1

// addRow adds a row.
func (s *sessions) take() error {
	c := Call{Model: s.Text("model"), Start: int64(s.Time(s.start, mostTime)), End: unknownEnd, ID: s.Text("id")}
	session := s.Text("session")
	if c.Model == "" || session == "" {
		_, model := s.Column("model")
		return s.Cell(model, "a model, and a session")
	}
	if s.endAt >= 0 && s.Row[s.endAt] != "" {
		if c.End = int64(s.Time(s.end, mostTime)); c.End < c.Start {
			return s.Cell(s.endAt, "an end that is not before the start")
		}
	}
	if s.readsAt >= 0 {
		c.Reads = append([]string{}, strings.Fields(s.Row[s.readsAt])...)
	}
	if application := s.Text("application"); application != "" {
		s.apps[session] = application
	}
	if s.calls[session] == nil {
		s.order = append(s.order, session)
	}
	s.calls[session] = append(s.calls[session], c)
	return nil
}

// splitRequests divides the calls of a session into requests.
func split(list []Call, gap time.Duration) (out [][]Call) {
	slices.SortStableFunc(list, func(a, b Call) int { return cmp.Compare(a.Start, b.Start) })
	for i := range list {
		if list[i].End != unknownEnd {
			continue
		}
		if list[i].End = list[i].Start; i+1 < len(list) && list[i+1].Start-list[i].Start <= int64(gap) {
			list[i].End = list[i+1].Start
		}
	}
	last := int64(0)
	for i := range list {
		if i == 0 || list[i].Start-last > int64(gap) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], list[i])
		last = max(last, list[i].End)
	}
	return out
}

package llmtrace

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Class is a class of requests of one model, and the number of rows that it was made from.
type Class struct {
	formats.LLMClass
	Model string
	Rows  int
	Turns int // number of sessions' first requests among the rows; 0 if the trace has no sessions
}

// Classes returns the classes of a trace in order of appearance.
func (t *Trace) Classes() []Class {
	type key struct{ model, class string }
	var order []key
	rows := map[key][]Row{}
	for _, r := range t.Rows {
		k := key{r.Model, r.Class}
		if rows[k] == nil {
			order = append(order, k)
		}
		rows[k] = append(rows[k], r)
	}
	span := t.Rows[len(t.Rows)-1].At - t.Rows[0].At
	var out []Class
	for _, k := range order {
		c := classOf(rows[k])
		c.Model, c.Class = k.model, k.class
		if t.Timed && span > 0 {
			c.RPS = digits(float64(max(1, c.Rows-1)) / span.Seconds())
			c.Arrivals = process(rows[k])
		}
		out = append(out, c)
	}
	return out
}

// poissonCV bounds the distance of the gaps' coefficient of variation from 1 for arrivals that count as a Poisson
// process.
const poissonCV = 0.1

// process returns the arrival process of the requests of one class, or nil for a Poisson process.
func process(rows []Row) *formats.Arrivals {
	if len(rows) < 10 {
		return nil
	}
	var sum, squares float64
	for i := 1; i < len(rows); i++ {
		gap := (rows[i].At - rows[i-1].At).Seconds()
		sum += gap
		squares += gap * gap
	}
	n := float64(len(rows) - 1)
	mean := sum / n
	cv := math.Sqrt(max(0, squares/n-mean*mean)) / mean
	if !(cv > 0) || math.IsInf(cv, 0) || math.Abs(cv-1) <= poissonCV {
		return nil
	}
	return &formats.Arrivals{Process: "gamma", CV: digits(cv)}
}

// classOf returns the properties of the rows of one class.
func classOf(rows []Row) Class {
	c := Class{Rows: len(rows)}
	prompts, outputs := make([]int, len(rows)), make([]int, len(rows))
	for i, r := range rows {
		prompts[i], outputs[i] = r.Prompt, max(1, r.Output)
	}
	switch {
	case slices.ContainsFunc(rows, func(r Row) bool { return r.Session != "" }):
		c.Sessions, c.Turns = bySession(rows, prompts)
	case slices.ContainsFunc(rows, func(r Row) bool { return r.Cached > 0 }):
		c.Sessions, c.Turns = byPrefix(rows, prompts)
	}
	c.Prompt, c.Output = lengths(prompts), lengths(outputs)
	return c
}

// bySession derives the parameters of sessions that the trace names. The repeated part of a prompt grows with the
// earlier tokens of its session, and the new part does not: the slope of prompt tokens over earlier tokens is the
// share that is repeated. The repeated part is subtracted from the prompts.
func bySession(rows []Row, prompts []int) (*formats.Sessions, int) {
	last := map[string]int{} // by session, its latest row
	var said line
	think, thinks := 0.0, 0
	context := make([]int, len(rows)) // earlier tokens of the session; 0 for its first request
	shared := -1

	// Find the request before each in its session. Other requests show how long a prefix all sessions share.
	for i, r := range rows {
		if b, ok := last[r.Session]; ok && r.Session != "" {
			context[i] = rows[b].Prompt + rows[b].Output
			said.add(float64(context[i]), float64(r.Prompt))
			think += (r.At - rows[b].At).Seconds()
			thinks++
		} else if r.Cached >= 0 && len(last) > 0 && (shared < 0 || r.Cached < shared) {
			shared = r.Cached // the first request of all finds nothing
		}
		if r.Session != "" {
			last[r.Session] = i
		}
	}

	// Sum up turns, think time and the share of earlier tokens that a prompt repeats.
	firsts := len(rows) - thinks
	s := &formats.Sessions{Turns: digits(float64(len(rows)) / float64(firsts)), SharedTokens: max(0, shared)}
	if thinks > 0 {
		s.Repeats = digits(said.slope())
		s.ThinkUS = document.Micros(time.Duration(think / float64(thinks) * float64(time.Second)).Round(time.Microsecond))
	}
	if s.Repeats == 1 {
		s.Repeats = 0 // the default: all
	}
	share := s.Repeats
	if share == 0 {
		share = 1
	}

	// Reduce each prompt to its own tokens.
	for i := range prompts {
		before := float64(s.SharedTokens)
		if context[i] > 0 {
			before = float64(context[i])
		}
		prompts[i] = max(1, prompts[i]-int(math.Round(share*before)))
	}
	return s, firsts
}

// line is a straight line through points.
type line struct{ n, x, y, xx, xy float64 }

func (l *line) add(x, y float64) {
	l.n, l.x, l.y, l.xx, l.xy = l.n+1, l.x+x, l.y+y, l.xx+x*x, l.xy+x*y
}

// slope returns the least-squares slope, limited to 0.001 to 1. It is 1 if the points do not determine it.
func (l *line) slope() float64 {
	spread := l.n*l.xx - l.x*l.x
	if l.n < 3 || spread <= 1e-9*l.n*l.xx {
		return 1
	}
	return max(0.001, min(1, (l.n*l.xy-l.x*l.y)/spread))
}

// byPrefix derives sessions from the cached tokens: the smallest number that is found repeatedly is shared by all
// requests, and a request that finds more continues a session.
func byPrefix(rows []Row, prompts []int) (*formats.Sessions, int) {
	var found []int
	for _, r := range rows {
		if r.Cached > 0 {
			found = append(found, r.Cached)
		}
	}
	slices.Sort(found)
	shared := found[0]
	if n := upTo(found, shared); 20*n < len(rows) {
		shared = 0 // almost no request finds just that
	}
	firsts := 0
	for i, r := range rows {
		if r.Cached <= shared {
			firsts++
		}
		prompts[i] = max(1, r.Prompt-max(r.Cached, min(shared, r.Prompt-1)))
	}
	return &formats.Sessions{Turns: digits(float64(len(rows)) / float64(max(1, firsts))), SharedTokens: shared}, firsts
}

// upTo returns how many of ascending numbers are at most x.
func upTo(list []int, x int) int {
	n, _ := slices.BinarySearch(list, x+1)
	return n
}

// classes is the number of weights in a distribution of lengths.
const classes = 100

// lengths returns the distribution of token counts: values of equal weight, each the mean of its rows.
func lengths(list []int) *formats.Lengths {
	slices.Sort(list)
	n := min(classes, len(list))
	out := &formats.Lengths{Distribution: formats.LengthsEmpirical}
	for k := range n {
		part := list[k*len(list)/n : (k+1)*len(list)/n]
		sum := 0
		for _, x := range part {
			sum += x
		}
		x := max(1, int(math.Round(float64(sum)/float64(len(part)))))
		if last := len(out.Tokens) - 1; last >= 0 && out.Tokens[last] == x {
			out.Weights[last]++
			continue
		}
		out.Tokens, out.Weights = append(out.Tokens, x), append(out.Weights, 1)
	}
	if len(out.Tokens) == n {
		out.Weights = nil // all are equal
	}
	return out
}

// digits rounds to four significant digits, the precision of a trace.
func digits(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

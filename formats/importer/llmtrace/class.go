package llmtrace

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Class is a class of requests of one model, and how many rows it is made of.
type Class struct {
	formats.LLMClass
	Model string
	Rows  int
	Turns int // sessions' first requests among the rows; 0: no session is told
}

// Classes are the models and classes of a trace, in the order in which they come.
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

// poissonCV is how far the variation of gaps may be from 1 to count as a Poisson
// process.
const poissonCV = 0.1

// process tells how requests of one class come. nil: as a Poisson process.
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

// classOf is what rows of one class have in common.
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

// bySession takes sessions as the trace tells them. What a prompt repeats grows with
// what was said before, and what is new in it does not: the slope of the one over the
// other is the share that is repeated. It is taken off the prompts.
func bySession(rows []Row, prompts []int) (*formats.Sessions, int) {
	last := map[string]int{} // row
	var said line
	think, thinks := 0.0, 0
	context := make([]int, len(rows)) // what was said before; 0: first of its session
	shared := -1
	for i, r := range rows {
		if b, ok := last[r.Session]; ok && r.Session != "" {
			context[i] = rows[b].Prompt + rows[b].Output
			said.add(float64(context[i]), float64(r.Prompt))
			think += (r.At - rows[b].At).Seconds()
			thinks++
		} else if r.Cached >= 0 && len(last) > 0 && (shared < 0 || r.Cached < shared) {
			shared = r.Cached // the first of all finds nothing
		}
		if r.Session != "" {
			last[r.Session] = i
		}
	}
	firsts := len(rows) - thinks
	s := &formats.Sessions{Turns: digits(float64(len(rows)) / float64(firsts)), SharedTokens: max(0, shared)}
	if thinks > 0 {
		s.Repeats = digits(said.slope())
		s.ThinkUS = document.Micros(time.Duration(think / float64(thinks) * float64(time.Second)).Round(time.Microsecond))
	}
	if s.Repeats == 1 {
		s.Repeats = 0 // all, which is what nothing says
	}
	share := s.Repeats
	if share == 0 {
		share = 1
	}
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

// slope is that of the least squares, from 0.001 to 1: 1 where the points do not tell.
func (l *line) slope() float64 {
	spread := l.n*l.xx - l.x*l.x
	if l.n < 3 || spread <= 1e-9*l.n*l.xx {
		return 1
	}
	return max(0.001, min(1, (l.n*l.xy-l.x*l.y)/spread))
}

// byPrefix tells sessions by what was sent before: the least that is found again and
// again is what all share, and a request that finds more goes on with a session.
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
		shared = 0 // hardly anybody finds just that
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

// upTo is how many of ascending numbers are at most x.
func upTo(list []int, x int) int {
	n, _ := slices.BinarySearch(list, x+1)
	return n
}

// classes of a distribution of lengths.
const classes = 100

// lengths is the distribution of token counts: classes of equal weight at the mean of
// their rows.
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
		out.Weights = nil // all alike
	}
	return out
}

// digits rounds to four: a trace tells no more.
func digits(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

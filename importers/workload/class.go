package workload

import (
	"cmp"
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

// Classes returns the classes of requests in a trace, by model and class, in order of appearance: their rates,
// arrivals, lengths and sessions.
func (t *Trace) Classes() []Class {
	type key struct{ model, class string }
	var keys []key
	rows := map[key][]Row{}
	for _, r := range t.Rows {
		k := key{r.Model, r.Class}
		if rows[k] == nil {
			keys = append(keys, k)
		}
		rows[k] = append(rows[k], r)
	}
	span := t.Rows[len(t.Rows)-1].ArrivedAt - t.Rows[0].ArrivedAt
	var out []Class
	for _, k := range keys {
		c := classOf(rows[k])
		c.Model, c.Class = k.model, k.class
		if t.HasTimes && span > 0 {
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

// process returns the arrival process of the requests of one class: gamma with their coefficient of variation, or
// nil for a Poisson process if that is close to 1 or the rows are few.
func process(rows []Row) *formats.Arrivals {
	if len(rows) < 10 {
		return nil
	}
	var sum, squares float64
	for i := 1; i < len(rows); i++ {
		gap := (rows[i].ArrivedAt - rows[i-1].ArrivedAt).Seconds()
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

// classOf returns the lengths and sessions of the rows of one class.
func classOf(rows []Row) Class {
	c := Class{Rows: len(rows)}
	prompts, outputs := make([]int, len(rows)), make([]int, len(rows))
	for i, r := range rows {
		prompts[i], outputs[i] = r.Prompt, max(1, r.Output)
	}
	switch {
	case slices.ContainsFunc(rows, func(r Row) bool { return r.Session != "" }):
		c.Sessions, c.Turns = bySession(rows, prompts)
	case slices.ContainsFunc(rows, func(r Row) bool { return r.CachedTokens > 0 }):
		c.Sessions, c.Turns = byPrefix(rows, prompts)
	}
	c.Prompt, c.Output = lengths(prompts), lengths(outputs)
	return c
}

// bySession derives the parameters of sessions that the trace names, and returns them with the number of sessions.
// The repeated part of a prompt grows with the earlier tokens of its session, and the new part does not: the slope of
// prompt tokens over earlier tokens is the share that is repeated. The repeated part is subtracted from prompts.
// prompts has the tokens of each row's prompt, and is reduced to its new part.
func bySession(rows []Row, prompts []int) (*formats.Sessions, int) {
	lastRow := map[string]int{} // by session, its latest row
	var repeats fittedLine
	thinkTime, thinks := 0.0, 0
	context := make([]int, len(rows)) // earlier tokens of the session; 0 for its first request
	sharedTokens := -1

	// Find the request before each in its session. Other requests show how long a prefix all sessions share.
	for i, r := range rows {
		if b, ok := lastRow[r.Session]; ok && r.Session != "" {
			context[i] = rows[b].Prompt + rows[b].Output
			repeats.add(float64(context[i]), float64(r.Prompt))
			thinkTime += (r.ArrivedAt - rows[b].ArrivedAt).Seconds()
			thinks++
		} else if r.CachedTokens >= 0 && len(lastRow) > 0 && (sharedTokens < 0 || r.CachedTokens < sharedTokens) {
			sharedTokens = r.CachedTokens // the first request of all finds nothing
		}
		if r.Session != "" {
			lastRow[r.Session] = i
		}
	}

	// Sum up turns, think time and the share of earlier tokens that a prompt repeats.
	firsts := len(rows) - thinks
	s := &formats.Sessions{Turns: digits(float64(len(rows)) / float64(firsts)), SharedTokens: max(0, sharedTokens)}
	if thinks > 0 {
		s.Repeats = digits(repeats.slope())
		s.ThinkUS = document.Micros(time.Duration(thinkTime / float64(thinks) * float64(time.Second)).Round(time.Microsecond))
	}
	if s.Repeats == 1 {
		s.Repeats = 0 // the default: all
	}
	repeatShare := cmp.Or(s.Repeats, 1)

	// Reduce each prompt to its own tokens.
	for i := range prompts {
		earlierTokens := float64(s.SharedTokens)
		if context[i] > 0 {
			earlierTokens = float64(context[i])
		}
		prompts[i] = max(1, prompts[i]-int(math.Round(repeatShare*earlierTokens)))
	}
	return s, firsts
}

// fittedLine is a straight line through points.
type fittedLine struct{ n, x, y, xx, xy float64 }

func (l *fittedLine) add(x, y float64) {
	l.n, l.x, l.y, l.xx, l.xy = l.n+1, l.x+x, l.y+y, l.xx+x*x, l.xy+x*y
}

// slope returns the least-squares slope of the points added, limited to 0.001 to 1. It is 1 if the points do not
// determine it.
func (l *fittedLine) slope() float64 {
	deviation := l.n*l.xx - l.x*l.x
	if l.n < 3 || deviation <= 1e-9*l.n*l.xx {
		return 1
	}
	return max(0.001, min(1, (l.n*l.xy-l.x*l.y)/deviation))
}

// byPrefix derives sessions from the cached tokens of requests, and returns them with the number of first requests.
// The smallest number that is found repeatedly is shared by all requests, and a request that finds more continues a
// session. The cached part is subtracted from prompts. A cached token is one that the server, or a cache without
// limit, has seen before.
func byPrefix(rows []Row, prompts []int) (*formats.Sessions, int) {
	var prefixLengths []int
	for _, r := range rows {
		if r.CachedTokens > 0 {
			prefixLengths = append(prefixLengths, r.CachedTokens)
		}
	}
	slices.Sort(prefixLengths)
	sharedTokens := prefixLengths[0]
	if n := upTo(prefixLengths, sharedTokens); 20*n < len(rows) {
		sharedTokens = 0 // almost no request finds just that
	}
	firsts := 0
	for i, r := range rows {
		if r.CachedTokens <= sharedTokens {
			firsts++
		}
		prompts[i] = max(1, r.Prompt-max(r.CachedTokens, min(sharedTokens, r.Prompt-1)))
	}
	return &formats.Sessions{Turns: digits(float64(len(rows)) / float64(max(1, firsts))), SharedTokens: sharedTokens}, firsts
}

// upTo returns how many of ascending numbers are at most x.
func upTo(list []int, x int) int {
	n, _ := slices.BinarySearch(list, x+1)
	return n
}

// classes is the number of weights in a distribution of lengths.
const classes = 100

// lengths returns an empirical distribution of token counts: values of equal weight, each the mean of as many of the
// counts in order. It sorts the list. The constant classes is the largest number of values.
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
		if lastTokens := len(out.Tokens) - 1; lastTokens >= 0 && out.Tokens[lastTokens] == x {
			out.Weights[lastTokens]++
			continue
		}
		out.Tokens, out.Weights = append(out.Tokens, x), append(out.Weights, 1)
	}
	if len(out.Tokens) == n {
		out.Weights = nil // all are equal
	}
	return out
}

// digits rounds a number to four significant digits, because a trace is not more precise.
func digits(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

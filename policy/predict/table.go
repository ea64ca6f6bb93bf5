package predict

import (
	"math/rand/v2"

	"inferplan/formats/seeded"
)

// Options say how a table predicts.
type Options struct {
	// MinSamples is the number of samples that a row must have before it predicts. 0 stands for 3.
	Least int32
	// LastTokenOnly leaves prefixes out: the last token alone predicts the next.
	LastOnly bool
	// Sampled draws the next token by its chance, as DyOrc does, from a stream of Seed. Otherwise the likeliest token is
	// predicted; of two, the smaller one.
	Sampled bool
	Seed    uint64
	// MinChance ends a prediction at the first token with a smaller chance.
	Sure float64
	// MaxRows bounds the rows of prefixes. 0 stands for 65,536. Longer prefixes back off.
	Rows int
}

// TransitionTable counts which token follows a prefix of tokens. Calls must not be concurrent.
type Table struct {
	opt    Options
	tokens tokens
	rows   []row
	edges  []edge
	apps   []app              // by application
	roots  map[[2]int32]int32 // row by application and feature
	lasts  map[[2]int32]int32 // row by application and last token
	rng    *rand.Rand         // nil if tokens are not drawn
}

// tableRow counts what followed a prefix, or a last token.
type row struct {
	total int32
	first int32 // -1 if none
	depth int32 // -1 if the row is of a last token
}

// edge is a token that followed a row.
type edge struct {
	token int32
	count int32
	row   int32 // of the prefix with this token; -1 if none
	next  int32 // next edge of the same row; -1 if none
}

// appScore counts how often each kind of row predicted the next token of an application.
type app struct {
	asked          int32 // predictions made
	plain, feature int32 // right ones without, and with the feature
}

// NoFeature is the feature of a request of which nothing is known.
const NoFeature int32 = -1

// New returns an empty table.
func New(opt Options) *Table {
	if opt.Least == 0 {
		opt.Least = 3
	}
	if opt.Rows == 0 {
		opt.Rows = 1 << 16
	}
	t := &Table{opt: opt, tokens: newTokens(), roots: map[[2]int32]int32{}, lasts: map[[2]int32]int32{}}
	if opt.Sampled {
		t.rng = seeded.New(opt.Seed, "predict")
	}
	return t
}

// TokenNumber returns the number of a token, and adds the token if it is new. The caller may reuse inputs.
func (t *Table) Number(service int32, work int64, inputs []int32) int32 {
	return t.tokens.number(service, work, inputs)
}

// Token returns the token with a number that TokenNumber returned.
func (t *Table) Token(number int32) *Token { return &t.tokens.list[number] }

// Cursor is the position of a request in the table.
type Cursor struct {
	app, feature int32
	rows         [2]int32 // of the prefix, without and with the feature; -1 if not counted
	last         int32    // -1 if none
}

// CursorAtStart returns the cursor of a request of an application before its first token.
func (t *Table) Begin(application, feature int32) Cursor {
	c := Cursor{app: application, feature: feature, rows: [2]int32{-1, -1}, last: -1}
	if r, ok := t.roots[[2]int32{application, NoFeature}]; ok {
		c.rows[0] = r
	}
	if feature != NoFeature {
		if r, ok := t.roots[[2]int32{application, feature}]; ok {
			c.rows[1] = r
		}
	}
	return c
}

// Advance moves a cursor along a token.
func (t *Table) Advance(c *Cursor, token int32) {
	for i, r := range c.rows {
		if r < 0 {
			continue
		}
		c.rows[i] = -1
		if e := t.find(r, token); e >= 0 {
			c.rows[i] = t.edges[e].row
		}
	}
	c.last = token
}

// findEdge returns the edge of a row along a token. If there is none, it returns -1.
func (t *Table) find(row, token int32) int32 {
	for e := t.rows[row].first; e >= 0; e = t.edges[e].next {
		if t.edges[e].token == token {
			return e
		}
	}
	return -1
}

// Learn counts a request that has ended: its tokens in order, of which the first `known` were known at its arrival.
func (t *Table) Learn(application, feature int32, path []int32, known int) {
	for int(application) >= len(t.apps) {
		t.apps = append(t.apps, app{})
	}
	if feature != NoFeature {
		t.score(application, feature, path, known)
	}
	t.count(application, NoFeature, path, known)
	if feature != NoFeature {
		t.count(application, feature, path, known)
	}
	for i := known; i <= len(path) && i > 0; i++ {
		t.bump(t.lastRow(application, path[i-1]), tokenAt(path, i))
	}
}

// tokenAt returns the i-th token of a path, and End behind the last.
func tokenAt(path []int32, i int) int32 {
	if i < len(path) {
		return path[i]
	}
	return End
}

// scoreRows counts how often either kind of row would have been right, before both learn the path.
func (t *Table) score(application, feature int32, path []int32, known int) {
	a := &t.apps[application]
	c := t.Begin(application, feature)
	for i := 0; i <= len(path); i++ {
		token := tokenAt(path, i)
		if i >= known {
			a.asked++
			if t.likely(t.plainRow(&c)) == token {
				a.plain++
			}
			if t.likely(t.featureRow(&c)) == token {
				a.feature++
			}
		}
		if i < len(path) {
			t.Advance(&c, token)
		}
	}
	if a.asked > 1<<20 { // older predictions count less
		a.asked, a.plain, a.feature = a.asked/2, a.plain/2, a.feature/2
	}
}

// countPrefixes counts a path in the rows of its prefixes.
func (t *Table) count(application, feature int32, path []int32, known int) {
	if t.opt.LastOnly {
		return
	}
	key := [2]int32{application, feature}
	r, ok := t.roots[key]
	if !ok {
		if r = t.newRow(0); r < 0 {
			return
		}
		t.roots[key] = r
	}
	for i := 0; r >= 0 && i <= len(path); i++ {
		token := tokenAt(path, i)
		if i < known {
			r = t.step(r, token, 0)
			continue
		}
		r = t.bump(r, token)
	}
}

// lastTokenRow returns the row of an application's last token, and adds it if it is new.
func (t *Table) lastRow(application, token int32) int32 {
	key := [2]int32{application, token}
	r, ok := t.lasts[key]
	if !ok {
		r = int32(len(t.rows))
		t.rows = append(t.rows, row{first: -1, depth: -1})
		t.lasts[key] = r
	}
	return r
}

// addRow adds a row of a prefix. If there are MaxRows already, it returns -1.
func (t *Table) newRow(depth int32) int32 {
	if len(t.rows) >= t.opt.Rows {
		return -1
	}
	t.rows = append(t.rows, row{first: -1, depth: depth})
	return int32(len(t.rows) - 1)
}

// countToken counts a token that followed a row, and returns the row of the longer prefix. If there is none, it returns
// -1.
func (t *Table) bump(r, token int32) int32 {
	if t.rows[r].total > 1<<30 {
		return -1
	}
	t.rows[r].total++
	return t.step(r, token, 1)
}

// followToken adds to the count of a token behind a row, adding the edge if it is new, and returns the row of the longer
// prefix. If there is none, it returns -1.
func (t *Table) step(r, token, count int32) int32 {
	e := t.find(r, token)
	if e < 0 {
		e = int32(len(t.edges))
		t.edges = append(t.edges, edge{token: token, row: -1, next: t.rows[r].first})
		t.rows[r].first = e
	}
	t.edges[e].count += count
	if token != End && t.edges[e].row < 0 && !t.ofLast(r) {
		t.edges[e].row = t.newRow(t.rows[r].depth + 1)
	}
	return t.edges[e].row
}

// isLastTokenRow returns true if a row is of a last token. Such rows have no longer ones.
func (t *Table) ofLast(r int32) bool { return t.rows[r].depth < 0 }

package predict

import (
	"math/rand/v2"

	"inferplan/formats/seeded"
)

// Options say how a table predicts.
type Options struct {
	// MinSamples is the number of samples that a row must have before it predicts. 0 stands for 3.
	MinSamples int32
	// LastTokenOnly leaves prefixes out: the last token alone predicts the next.
	LastTokenOnly bool
	// Sampled draws the next token by its chance, as DyOrc does, from a stream of Seed. Otherwise the likeliest token is
	// predicted; of two, the smaller one.
	Sampled bool
	Seed    uint64
	// MinChance ends a prediction at the first token with a smaller chance.
	MinChance float64
	// MaxRows bounds the rows of prefixes. 0 stands for 65,536. Longer prefixes back off.
	MaxRows int
}

// TransitionTable counts which token follows a prefix of tokens. Calls must not be concurrent.
type TransitionTable struct {
	options       Options
	numbers       tokenNumbers
	rows          []tableRow
	edges         []edge
	scores        []appScore         // by application
	rootRows      map[[2]int32]int32 // row by application and feature
	lastTokenRows map[[2]int32]int32 // row by application and last token
	rng           *rand.Rand         // nil if tokens are not drawn
}

// tableRow counts what followed a prefix, or a last token.
type tableRow struct {
	samples      int32
	firstEdge    int32 // -1 if none
	prefixLength int32 // -1 if the row is of a last token
}

// edge is a token that followed a row.
type edge struct {
	token     int32
	count     int32
	longerRow int32 // of the prefix with this token; -1 if none
	nextEdge  int32 // next edge of the same row; -1 if none
}

// appScore counts how often each kind of row predicted the next token of an application.
type appScore struct {
	predictions            int32 // predictions made
	plainHits, featureHits int32 // right ones without, and with the feature
}

// NoFeature is the feature of a request of which nothing is known.
const NoFeature int32 = -1

// New returns an empty table of transitions between tokens (kinds of tasks). By default a row predicts from 3
// samples on, and the table has at most 65,536 rows.
func New(opt Options) *TransitionTable {
	if opt.MinSamples == 0 {
		opt.MinSamples = 3
	}
	if opt.MaxRows == 0 {
		opt.MaxRows = 1 << 16
	}
	t := &TransitionTable{options: opt, numbers: newTokenNumbers(), rootRows: map[[2]int32]int32{}, lastTokenRows: map[[2]int32]int32{}}
	if opt.Sampled {
		t.rng = seeded.New(opt.Seed, "predict")
	}
	return t
}

// TokenNumber returns the number of a token, and adds the token if it is new. The caller may reuse inputs.
func (t *TransitionTable) TokenNumber(service int32, work int64, inputs []int32) int32 {
	return t.numbers.numberOf(service, work, inputs)
}

// Token returns the token with a number that TokenNumber returned.
func (t *TransitionTable) Token(number int32) *Token { return &t.numbers.tokens[number] }

// Cursor is the position of a request in the table.
type Cursor struct {
	app, feature int32
	rows         [2]int32 // of the prefix, without and with the feature; -1 if not counted
	lastToken    int32    // -1 if none
}

// CursorAtStart returns the cursor (place in the table) of a request of an application before its first token: in
// the row without a feature, and in that of its feature if it has one. -1 means that the table has no such row.
func (t *TransitionTable) CursorAtStart(application, feature int32) Cursor {
	c := Cursor{app: application, feature: feature, rows: [2]int32{-1, -1}, lastToken: -1}
	if r, ok := t.rootRows[[2]int32{application, NoFeature}]; ok {
		c.rows[0] = r
	}
	if feature != NoFeature {
		if r, ok := t.rootRows[[2]int32{application, feature}]; ok {
			c.rows[1] = r
		}
	}
	return c
}

// Advance moves a cursor (a request's path so far) along a token, the kind of its next task. Rows of prefixes that
// the table does not have become -1; then only the last token predicts.
func (t *TransitionTable) Advance(c *Cursor, token int32) {
	for i, r := range c.rows {
		if r < 0 {
			continue
		}
		c.rows[i] = -1
		if e := t.findEdge(r, token); e >= 0 {
			c.rows[i] = t.edges[e].longerRow
		}
	}
	c.lastToken = token
}

// findEdge returns the edge (a count of what followed) of a row along a token, the number of a kind of task. If
// there is none, it returns -1.
func (t *TransitionTable) findEdge(row, token int32) int32 {
	for e := t.rows[row].firstEdge; e >= 0; e = t.edges[e].nextEdge {
		if t.edges[e].token == token {
			return e
		}
	}
	return -1
}

// Learn counts a request that has ended in the table: its path, the tokens (kinds of tasks) in order, of which the
// first knownTokens were known at its arrival. It is counted without and with the request's feature, and by the
// last token alone.
func (t *TransitionTable) Learn(application, feature int32, path []int32, knownTokens int) {
	for int(application) >= len(t.scores) {
		t.scores = append(t.scores, appScore{})
	}
	if feature != NoFeature {
		t.scoreRows(application, feature, path, knownTokens)
	}
	t.countPrefixes(application, NoFeature, path, knownTokens)
	if feature != NoFeature {
		t.countPrefixes(application, feature, path, knownTokens)
	}
	for i := knownTokens; i <= len(path) && i > 0; i++ {
		t.countToken(t.lastTokenRow(application, path[i-1]), tokenAt(path, i))
	}
}

// tokenAt returns the i-th token of a path, and End behind the last.
func tokenAt(path []int32, i int) int32 {
	if i < len(path) {
		return path[i]
	}
	return End
}

// scoreRows counts how often either kind of row, with the request's feature or without it, would have predicted the
// path right, before both learn it. The better kind is then used for this application. Tokens that were known at
// the arrival do not count.
func (t *TransitionTable) scoreRows(application, feature int32, path []int32, knownTokens int) {
	a := &t.scores[application]
	c := t.CursorAtStart(application, feature)
	for i := 0; i <= len(path); i++ {
		token := tokenAt(path, i)
		if i >= knownTokens {
			a.predictions++
			if t.likeliestToken(t.plainRow(&c)) == token {
				a.plainHits++
			}
			if t.likeliestToken(t.featureRow(&c)) == token {
				a.featureHits++
			}
		}
		if i < len(path) {
			t.Advance(&c, token)
		}
	}
	if a.predictions > 1<<20 { // older predictions count less
		a.predictions, a.plainHits, a.featureHits = a.predictions/2, a.plainHits/2, a.featureHits/2
	}
}

// countPrefixes counts a path in the rows of all its prefixes: behind each, the token that followed. The first
// knownTokens tokens are followed without a count, because they need no prediction. If the table is full, the rest
// is not counted.
func (t *TransitionTable) countPrefixes(application, feature int32, path []int32, knownTokens int) {
	if t.options.LastTokenOnly {
		return
	}
	key := [2]int32{application, feature}
	r, ok := t.rootRows[key]
	if !ok {
		if r = t.addRow(0); r < 0 {
			return
		}
		t.rootRows[key] = r
	}
	for i := 0; r >= 0 && i <= len(path); i++ {
		token := tokenAt(path, i)
		if i < knownTokens {
			r = t.followToken(r, token, 0)
			continue
		}
		r = t.countToken(r, token)
	}
}

// lastTokenRow returns the row that counts what follows a token of an application, whatever came before it. It adds
// the row if it is new.
func (t *TransitionTable) lastTokenRow(application, token int32) int32 {
	key := [2]int32{application, token}
	r, ok := t.lastTokenRows[key]
	if !ok {
		r = int32(len(t.rows))
		t.rows = append(t.rows, tableRow{firstEdge: -1, prefixLength: -1})
		t.lastTokenRows[key] = r
	}
	return r
}

// addRow adds a row of a prefix. If there are MaxRows already, it returns -1.
func (t *TransitionTable) addRow(depth int32) int32 {
	if len(t.rows) >= t.options.MaxRows {
		return -1
	}
	t.rows = append(t.rows, tableRow{firstEdge: -1, prefixLength: depth})
	return int32(len(t.rows) - 1)
}

// countToken counts a token that followed a row, and returns the row of the longer prefix. If there is none, it returns
// -1.
func (t *TransitionTable) countToken(r, token int32) int32 {
	if t.rows[r].samples > 1<<30 {
		return -1
	}
	t.rows[r].samples++
	return t.followToken(r, token, 1)
}

// followToken follows a row (a path so far) along a token (kind of task), adds to that token's count, and returns
// the row of the longer path. The edge and the row are added if they are new. If there is no such row, because the
// table is full or the path has ended, it returns -1.
func (t *TransitionTable) followToken(r, token, count int32) int32 {
	e := t.findEdge(r, token)
	if e < 0 {
		e = int32(len(t.edges))
		t.edges = append(t.edges, edge{token: token, longerRow: -1, nextEdge: t.rows[r].firstEdge})
		t.rows[r].firstEdge = e
	}
	t.edges[e].count += count
	if token != End && t.edges[e].longerRow < 0 && !t.isLastTokenRow(r) {
		t.edges[e].longerRow = t.addRow(t.rows[r].prefixLength + 1)
	}
	return t.edges[e].longerRow
}

// isLastTokenRow returns true if a row is of a last token. Such rows have no longer ones.
func (t *TransitionTable) isLastTokenRow(r int32) bool { return t.rows[r].prefixLength < 0 }

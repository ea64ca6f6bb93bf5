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
	rows          []predictionRow
	edges         []edge
	scores        []appScore         // by application
	rootRows      map[[2]int32]int32 // row by application and feature
	lastTokenRows map[[2]int32]int32 // row by application and last token
	rng           *rand.Rand         // nil if tokens are not drawn
}

// predictionRow counts what followed a prefix (the tokens of a request so far), or a last token.
type predictionRow struct {
	samples      int32
	firstEdge    int32 // index of its first edge; -1 if none
	prefixLength int32 // tokens of the prefix; -1 if the row is of a last token
}

// edge is a token that followed a row, with its count. The edges of a row form a list.
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

// New returns an empty table of transitions between tokens (numbers of kinds of tasks), which Learn fills with the paths
// of ended requests. MinSamples, from which on a row predicts, is 3 if it is not set, and MaxRows 65,536. With
// Options.Sampled predictions are drawn by their chances from a seed, otherwise the likeliest is taken.
func New(options Options) *TransitionTable {
	if options.MinSamples == 0 {
		options.MinSamples = 3
	}
	if options.MaxRows == 0 {
		options.MaxRows = 1 << 16
	}
	table := &TransitionTable{options: options, numbers: newTokenNumbers(), rootRows: map[[2]int32]int32{}, lastTokenRows: map[[2]int32]int32{}}
	if options.Sampled {
		table.rng = seeded.New(options.Seed, "predict")
	}
	return table
}

// TokenNumber returns the number of a token, and adds the token if it is new. The caller may reuse inputs.
func (table *TransitionTable) TokenNumber(service int32, work int64, inputs []int32) int32 {
	return table.numbers.numberOf(service, work, inputs)
}

// Token returns the token (kind of task) with a number that TokenNumber returned.
func (table *TransitionTable) Token(number int32) *Token { return &table.numbers.tokens[number] }

// Cursor is the position of a request in the table: the rows that its path so far leads to.
type Cursor struct {
	app, feature int32
	rows         [2]int32 // rows of the prefix: plainKind and featureKind; -1 if not counted
	lastToken    int32    // -1 if none
}

// Kinds of the rows of a cursor.
const (
	plainKind   = iota // counts all requests of the application
	featureKind        // counts those with the feature of the request
)

// CursorAtStart returns the cursor (the rows of the table at which a request is) of a request of an application before
// its first token: in the row of all requests, and in that of its feature if it has one (NoFeature means none). -1 means
// that the table has no such row, or that there was no token yet.
func (table *TransitionTable) CursorAtStart(application, feature int32) Cursor {
	cursor := Cursor{app: application, feature: feature, rows: [2]int32{-1, -1}, lastToken: -1}
	if row, ok := table.rootRows[[2]int32{application, NoFeature}]; ok {
		cursor.rows[plainKind] = row
	}
	if feature != NoFeature {
		if row, ok := table.rootRows[[2]int32{application, feature}]; ok {
			cursor.rows[featureKind] = row
		}
	}
	return cursor
}

// Advance moves a cursor (a request's path so far) along a token, the kind of its next task, in both of its rows: of all
// requests, and of those with its feature. Rows of prefixes that the table does not have become -1; then only the last
// token predicts.
func (table *TransitionTable) Advance(cursor *Cursor, token int32) {
	for kind, row := range cursor.rows {
		if row < 0 {
			continue
		}
		cursor.rows[kind] = -1
		if edgeIndex := table.findEdge(row, token); edgeIndex >= 0 {
			cursor.rows[kind] = table.edges[edgeIndex].longerRow
		}
	}
	cursor.lastToken = token
}

// findEdge returns the index of the edge (the count of one token) of a row (what followed a path) along a token, the
// number of a kind of task. If there is none, it returns -1.
func (table *TransitionTable) findEdge(row, token int32) int32 {
	for edgeIndex := table.rows[row].firstEdge; edgeIndex >= 0; edgeIndex = table.edges[edgeIndex].nextEdge {
		if table.edges[edgeIndex].token == token {
			return edgeIndex
		}
	}
	return -1
}

// Learn counts a request that has ended in the table: its path, the tokens (kinds of tasks) in order, of which the
// first knownTokens were known at its arrival and needed no prediction. It is counted without and with the request's
// feature, and by the last token alone. If it has a feature, Learn first notes in scores whether the rows with or
// without the feature predict the path better, while these rows do not have it yet.
func (table *TransitionTable) Learn(application, feature int32, path []int32, knownTokens int) {
	for int(application) >= len(table.scores) {
		table.scores = append(table.scores, appScore{})
	}
	if feature != NoFeature {
		table.scoreRows(application, feature, path, knownTokens)
	}
	table.countPrefixes(application, NoFeature, path, knownTokens)
	if feature != NoFeature {
		table.countPrefixes(application, feature, path, knownTokens)
	}

	// By the last token alone: count what followed each token of the path, where that had to be predicted. The token End
	// follows the last one (position len(path)). Position 0 has no token before it; if nothing was known at the arrival,
	// the loop ends there at once.
	for position := knownTokens; position <= len(path) && position > 0; position++ {
		table.countToken(table.lastTokenRow(application, path[position-1]), tokenAt(path, position))
	}
}

// tokenAt returns the token of a path at a position, and End at the position behind the last.
func tokenAt(path []int32, position int) int32 {
	if position < len(path) {
		return path[position]
	}
	return End
}

// maxScoredPredictions is the number of predictions of an application after which the counts of appScore are halved.
const maxScoredPredictions = 1 << 20

// maxRowSamples is the number of samples after which a row counts no more, so that no count overflows.
const maxRowSamples = 1 << 30

// scoreRows is called for an ended request before its path is learnt. It counts in scores how often either kind of row,
// that of the request's feature or that of all requests, would have predicted the next token. The kind with more hits
// predicts from then on for this application (predictingRow). Tokens that were known at the arrival do not count.
func (table *TransitionTable) scoreRows(application, feature int32, path []int32, knownTokens int) {
	score := &table.scores[application]
	cursor := table.CursorAtStart(application, feature)
	for position := 0; position <= len(path); position++ { // the last one is End, behind the path
		// Compare both predictions with the token that came, then move on.
		token := tokenAt(path, position)
		if position >= knownTokens {
			score.predictions++
			if table.likeliestToken(table.plainRow(&cursor)) == token {
				score.plainHits++
			}
			if table.likeliestToken(table.featureRow(&cursor)) == token {
				score.featureHits++
			}
		}
		if position < len(path) {
			table.Advance(&cursor, token)
		}
	}

	// Let older predictions count less: halve all counts now and then.
	if score.predictions > maxScoredPredictions {
		score.predictions /= 2
		score.plainHits /= 2
		score.featureHits /= 2
	}
}

// countPrefixes counts a path in the rows of all its prefixes, of requests with this feature (NoFeature: of all): behind
// each prefix, the token that followed, and End behind the whole path. The first knownTokens tokens are followed without
// a count, because they need no prediction. If the table is full, the rest is not counted. With LastTokenOnly it does
// nothing.
func (table *TransitionTable) countPrefixes(application, feature int32, path []int32, knownTokens int) {
	if table.options.LastTokenOnly {
		return
	}

	// Find the row of the empty prefix, or add it.
	key := [2]int32{application, feature}
	row, ok := table.rootRows[key]
	if !ok {
		row = table.addRow(0)
		if row < 0 {
			return
		}
		table.rootRows[key] = row
	}

	// Count each token in the row of the prefix before it.
	for position := 0; row >= 0 && position <= len(path); position++ {
		token := tokenAt(path, position)
		if position < knownTokens {
			row = table.followToken(row, token, 0) // a count of 0 only adds the row
			continue
		}
		row = table.countToken(row, token)
	}
}

// lastTokenRow returns the row that counts what follows a token (kind of task) of an application, whatever came before
// it. It adds the row if it is new; its prefix length of -1 marks it as a row of this sort.
func (table *TransitionTable) lastTokenRow(application, token int32) int32 {
	key := [2]int32{application, token}
	row, ok := table.lastTokenRows[key]
	if !ok {
		row = int32(len(table.rows))
		table.rows = append(table.rows, predictionRow{firstEdge: -1, prefixLength: -1})
		table.lastTokenRows[key] = row
	}
	return row
}

// addRow adds a row for a prefix of depth tokens and returns its index. If there are MaxRows already, it returns -1.
func (table *TransitionTable) addRow(depth int32) int32 {
	if len(table.rows) >= table.options.MaxRows {
		return -1
	}
	table.rows = append(table.rows, predictionRow{firstEdge: -1, prefixLength: depth})
	return int32(len(table.rows) - 1)
}

// countToken counts a token (kind of task) that followed a row, and returns the index of the row of the longer
// prefix. If there is none, or the row has maxRowSamples samples, it returns -1.
func (table *TransitionTable) countToken(row, token int32) int32 {
	if table.rows[row].samples > maxRowSamples {
		return -1
	}
	table.rows[row].samples++
	return table.followToken(row, token, 1)
}

// followToken adds `count` to the count of a token (kind of task) behind a row: the row of the path that a request has
// come so far. It returns the index of the row of that path with the token appended. The edge, which has the count, and
// that row are added if they are new; with a count of 0 they are added and nothing is counted. It returns -1 if there
// is no such row: the path has ended with this token, the table is full (addRow), or the row is of the other sort,
// which counts what follows a token whatever came before it, and which no path goes through.
func (table *TransitionTable) followToken(row, token, count int32) int32 {
	edgeIndex := table.findEdge(row, token)
	if edgeIndex < 0 {
		edgeIndex = int32(len(table.edges))
		table.edges = append(table.edges, edge{token: token, longerRow: -1, nextEdge: table.rows[row].firstEdge})
		table.rows[row].firstEdge = edgeIndex
	}
	table.edges[edgeIndex].count += count
	if token != End && table.edges[edgeIndex].longerRow < 0 && !table.isLastTokenRow(row) {
		table.edges[edgeIndex].longerRow = table.addRow(table.rows[row].prefixLength + 1)
	}
	return table.edges[edgeIndex].longerRow
}

// isLastTokenRow reports whether a row counts what follows a last token alone. Such rows have no longer ones.
func (table *TransitionTable) isLastTokenRow(row int32) bool { return table.rows[row].prefixLength < 0 }

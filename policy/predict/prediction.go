package predict

// PredictTokens predicts the tasks that a request will still ask for, from those of earlier requests. It appends to
// tokens (numbers of kinds of tasks) the predicted ones that follow a cursor, a request's path so far, up to the end of
// the request, at most `limit` of them. With Options.MinChance it stops at the first token with a smaller chance. The
// caller's cursor stays.
func (table *TransitionTable) PredictTokens(cursor Cursor, limit int, tokens []int32) []int32 {
	for range limit {
		token := table.nextToken(&cursor)
		if token == End || table.options.MinChance > 0 && chanceOf(table, table.predictingRow(&cursor), token) < table.options.MinChance {
			break
		}
		tokens = append(tokens, token)
		table.Advance(&cursor, token)
	}
	return tokens
}

// TokenChance is the chance with which a token (the number of a kind of task) comes next.
type TokenChance struct {
	Token  int32
	Chance float64
}

// NextChances appends to chances the possible next tokens (kinds of tasks) of a request at a cursor (its path so far),
// each with its chance: how often it followed such a path among the samples of the row. The end of a request is token
// End. If nothing is known, it appends nothing.
func (table *TransitionTable) NextChances(cursor *Cursor, chances []TokenChance) []TokenChance {
	row := table.predictingRow(cursor)
	if row < 0 {
		return chances
	}
	for edgeIndex := table.rows[row].firstEdge; edgeIndex >= 0; edgeIndex = table.edges[edgeIndex].nextEdge {
		if count := table.edges[edgeIndex].count; count > 0 {
			chances = append(chances, TokenChance{table.edges[edgeIndex].token, float64(count) / float64(table.rows[row].samples)})
		}
	}
	return chances
}

// chanceOf returns the chance with which a token (a kind of task) followed the paths of a row.
func chanceOf(table *TransitionTable, row, token int32) float64 {
	edgeIndex := table.findEdge(row, token)
	return float64(table.edges[edgeIndex].count) / float64(table.rows[row].samples)
}

// nextToken returns the token (kind of task) that is predicted at a cursor (a request's path so far): the likeliest
// or, if the table samples, one drawn by its share. End means that the request ends or that nothing is known.
func (table *TransitionTable) nextToken(cursor *Cursor) int32 {
	row := table.predictingRow(cursor)
	if row < 0 || table.rng == nil {
		return table.likeliestToken(row)
	}

	// Draw one of the samples of the row, and find the edge on which it lies. A row is the count of what followed a path,
	// with an edge for each token that did; edges of a row are linked by nextEdge.
	remaining := table.rng.Int32N(table.rows[row].samples)
	for edgeIndex := table.rows[row].firstEdge; edgeIndex >= 0; edgeIndex = table.edges[edgeIndex].nextEdge {
		remaining -= table.edges[edgeIndex].count
		if remaining < 0 {
			return table.edges[edgeIndex].token
		}
	}
	return End
}

// predictingRow returns the index of the row (the counts of what followed a path) that predicts at a cursor (a request's
// path so far): the one of requests with the same feature (a property known at the arrival) if such rows were right more
// often in this application, else the one of all requests. If there is none, it returns -1.
func (table *TransitionTable) predictingRow(cursor *Cursor) int32 {
	// Use the row with the feature if it has samples enough, and such rows were right more often in this application.
	if row := table.featureRow(cursor); row >= 0 && cursor.rows[featureKind] == row {
		if score := &table.scores[cursor.app]; score.featureHits > score.plainHits {
			return row
		}
	}
	return table.plainRow(cursor)
}

// featureRow returns the index of the row that counts what followed a request's path so far among requests with the
// same feature. If it has too few samples, it returns the row without the feature.
func (table *TransitionTable) featureRow(cursor *Cursor) int32 {
	if row := cursor.rows[featureKind]; row >= 0 && table.rows[row].samples >= table.options.MinSamples {
		return row
	}
	return table.plainRow(cursor)
}

// plainRow returns the index of the row that counts what followed a request's whole path so far, whatever the request's
// feature. If it has fewer than MinSamples samples, it returns the row of the last token (kind of task) alone, and if
// that has none, -1.
func (table *TransitionTable) plainRow(cursor *Cursor) int32 {
	if row := cursor.rows[plainKind]; row >= 0 && table.rows[row].samples >= table.options.MinSamples {
		return row
	}
	if row, ok := table.lastTokenRows[[2]int32{cursor.app, cursor.lastToken}]; ok && table.rows[row].samples > 0 {
		return row
	}
	return -1
}

// likeliestToken returns the token (kind of task) that followed the paths of a row most often; of two equal ones the
// smaller. For row -1 or an empty row it returns End.
func (table *TransitionTable) likeliestToken(row int32) int32 {
	if row < 0 {
		return End
	}
	likeliest, count := End, int32(0)
	for edgeIndex := table.rows[row].firstEdge; edgeIndex >= 0; edgeIndex = table.edges[edgeIndex].nextEdge {
		if candidate := &table.edges[edgeIndex]; candidate.count > count || candidate.count == count && count > 0 && candidate.token < likeliest {
			likeliest, count = candidate.token, candidate.count
		}
	}
	return likeliest
}

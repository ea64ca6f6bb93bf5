package main

import (
	"fmt"
	"slices"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/policy/predict"
	"inferplan/testkit/workflows"
)

// measureAccuracy learns from requests in order and predicts each before it learns from it.
func (b *bench) measureAccuracy(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"application", "next token", "whole request"}
	for m, name := range workflows.Names {
		next, whole := accuracy(int32(m), 20_000)
		t.Add(name, fmt.Sprintf("%.3f", next), fmt.Sprintf("%.3f", whole))
		r.Figure(figures.Figure{Claim: "accuracy of the next token, " + name + b.suffix, Source: paper + " figure 12", Asked: "76 to 94 %", Measured: 100 * next, Unit: "%",
			Holds: figures.If(next >= .755 && next <= .945)})
	}
	return nil
}

// accuracy says how often the next token, the end included, and the whole rest of a
// request are predicted, of so many requests.
func accuracy(model int32, requests int) (next, whole float64) {
	t, apps := predict.New(predict.Options{}), workflows.NewApps(1)
	var w workflows.Way
	var path, ahead []int32
	asked, right, all := 0, 0, 0
	for range requests {
		w.Reset()
		apps.Draw(model, &w)
		path = path[:0]
		for i := range w.Len() {
			k := &w.Tasks[i]
			var inputs []int32
			for _, in := range k.Reads {
				inputs = append(inputs, int32(i)-in)
			}
			path = append(path, t.TokenNumber(k.Service, k.Work, inputs))
		}
		known := int(w.Ends[0])
		c := t.CursorAtStart(model, predict.NoFeature)
		for i := 0; i <= len(path); i++ {
			if i >= known {
				ahead = t.PredictTokens(c, 16-i, ahead[:0])
				if i == known && slices.Equal(ahead, path[i:]) {
					all++
				}
				asked++
				if i == len(path) && len(ahead) == 0 || i < len(path) && len(ahead) > 0 && ahead[0] == path[i] {
					right++
				}
			}
			if i < len(path) {
				t.Advance(&c, path[i])
			}
		}
		t.Learn(model, predict.NoFeature, path, known)
	}
	return float64(right) / float64(asked), float64(all) / float64(requests)
}

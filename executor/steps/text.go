package steps

import (
	"encoding/binary"
	"math"

	"inferplan/engine"
)

// bindText binds the step that decodes the scores of a recogniser: at each place the best class, repeated classes
// once, without blanks (class 0). A code is the line of the recogniser's key file, from 1; unused codes are 0. The
// score is the mean over the codes, or 0 if there are none.
func bindText(t *Tensors) ([]engine.Spec, Post, error) {
	in, err := one("the step ocr-text: the model gives", t.Gives, engine.F32, 3)
	if err != nil {
		return nil, nil, err
	}
	places, classes := int(in.Shape[1]), int(in.Shape[2])
	gives := []engine.Spec{
		{Name: "codes", Type: engine.I32, Shape: []int64{engine.BatchDim, int64(places)}},
		{Name: "score", Type: engine.F32, Shape: []int64{engine.BatchDim, 1}},
	}
	return gives, func(dst, made [][]byte) int32 {
		clear(dst[0])
		n, last, sum := 0, 0, float32(0)
		for p := range places {
			row := made[0][4*p*classes:][:4*classes]

			// Find the best class of the place.
			best, most := 0, float(row, 0)
			for c := 1; c < classes; c++ {
				if v := float(row, c); v > most {
					best, most = c, v
				}
			}
			if best != 0 && best != last {
				binary.LittleEndian.PutUint32(dst[0][4*n:], uint32(best))
				n, sum = n+1, sum+most
			}
			last = best
		}

		// The score of the text.
		score := float32(0)
		if n > 0 {
			score = sum / float32(n)
		}
		binary.LittleEndian.PutUint32(dst[1], math.Float32bits(score))
		return 0
	}, nil
}

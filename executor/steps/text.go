package steps

import (
	"encoding/binary"
	"math"

	"inferplan/engine"
)

// bindText binds the step that decodes the scores of a recogniser: at each place the best class, repeated classes
// once, without blanks (class 0). A code is the line of the recogniser's key file, from 1; unused codes are 0. The
// score is the mean over the codes, or 0 if there are none.
func bindText(t *Tensors) ([]engine.Spec, BoundPost, error) {
	in, err := singleTensor("the step ocr-text: the model gives", t.ModelOutputs, engine.F32, 3)
	if err != nil {
		return nil, nil, err
	}
	places, classes := int(in.Shape[1]), int(in.Shape[2])
	specs := []engine.Spec{
		{Name: "codes", Type: engine.I32, Shape: []int64{engine.BatchDim, int64(places)}},
		{Name: "score", Type: engine.F32, Shape: []int64{engine.BatchDim, 1}},
	}
	return specs, func(dst, outputs [][]byte) int32 {
		clear(dst[0])
		n, previous, sum := 0, 0, float32(0)
		for p := range places {
			row := outputs[0][4*p*classes:][:4*classes]

			// Find the best class of the place.
			bestClass, bestScore := 0, floatAt(row, 0)
			for c := 1; c < classes; c++ {
				if v := floatAt(row, c); v > bestScore {
					bestClass, bestScore = c, v
				}
			}
			if bestClass != 0 && bestClass != previous {
				binary.LittleEndian.PutUint32(dst[0][4*n:], uint32(bestClass))
				n, sum = n+1, sum+bestScore
			}
			previous = bestClass
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

package steps

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"inferplan/engine"
)

// box is a part of an image, of pixels [x0,x1) by [y0,y1), with how sure the
// detector is of it.
type box struct {
	x0, y0, x1, y1 int
	score          float32
}

// boxBytes are five floats.
const boxBytes = 20

func (b *box) write(dst []byte) {
	for i, v := range [5]float32{float32(b.x0), float32(b.y0), float32(b.x1), float32(b.y1), b.score} {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

func readBox(data []byte) box {
	pixel := func(i int) int {
		if v := float(data, i); v > 0 {
			return int(min(v, 1<<20))
		}
		return 0 // no number, too
	}
	return box{pixel(0), pixel(1), pixel(2), pixel(3), float(data, 4)}
}

// within is the part of a box that lies in an image.
func (b box) within(w, h int) box {
	b.x0, b.y0, b.x1, b.y1 = max(b.x0, 0), max(b.y0, 0), min(b.x1, w), min(b.y1, h)
	return b
}

// Figures of PaddleOCR's DBPostProcess: a pixel of text, a box of text, how far a
// box is pushed outwards again, and the least side of one.
const (
	pixelScore = .3
	boxScore   = .6
	unclip     = 1.5
	leastSide  = 3
)

// bindBox finds the line of text in a detector's map. Ways: 0 there is one, 1 there
// is none.
func bindBox(t *Tensors) ([]engine.Spec, Post, error) {
	in, err := one("the step ocr-box: the model gives", t.Gives, engine.F32, 4)
	if err != nil {
		return nil, nil, err
	}
	h, w := int(in.Shape[2]), int(in.Shape[3])
	if in.Shape[1] != 1 || h > 1<<14 || w > 1<<14 {
		return nil, nil, fmt.Errorf("the step ocr-box: the model gives %v, expected one plane of at most 16384 either way", in)
	}
	room := sync.Pool{New: func() any { return &regions{seen: make([]bool, w*h)} }}
	gives := []engine.Spec{{Name: "box", Type: engine.F32, Shape: []int64{engine.BatchDim, 5}}}
	return gives, func(dst, made [][]byte) int32 {
		r := room.Get().(*regions)
		defer room.Put(r)
		b := r.largest(made[0], w, h)
		b.write(dst[0])
		if b.x1 > b.x0 {
			return 0
		}
		return 1
	}, nil
}

// regions is the memory of a search for boxes.
type regions struct {
	seen  []bool
	stack []int32
}

// largest is the box of the largest region of text; empty: there is none.
func (r *regions) largest(data []byte, w, h int) (best box) {
	clear(r.seen)
	area := 0
	for i := range w * h {
		if r.seen[i] || !(float(data, i) > pixelScore) {
			continue
		}
		b, ok := r.region(data, w, h, int32(i))
		if size := (b.x1 - b.x0) * (b.y1 - b.y0); ok && size > area {
			best, area = b, size
		}
	}
	return best
}

// region is the box around the text that holds a pixel; false: it is none.
func (r *regions) region(data []byte, w, h int, from int32) (b box, ok bool) {
	b = box{x0: w, y0: h}
	sum, n := 0.0, 0
	r.seen[from] = true
	r.stack = append(r.stack[:0], from)
	for len(r.stack) > 0 {
		i := int(r.stack[len(r.stack)-1])
		r.stack = r.stack[:len(r.stack)-1]
		x, y := i%w, i/w
		b.x0, b.y0, b.x1, b.y1 = min(b.x0, x), min(b.y0, y), max(b.x1, x+1), max(b.y1, y+1)
		sum, n = sum+float64(float(data, i)), n+1
		for dy := -1; dy <= 1; dy++ {
			for dx := -1; dx <= 1; dx++ {
				if u, v := x+dx, y+dy; u >= 0 && v >= 0 && u < w && v < h {
					if k := v*w + u; !r.seen[k] && float(data, k) > pixelScore {
						r.seen[k] = true
						r.stack = append(r.stack, int32(k))
					}
				}
			}
		}
	}
	bw, bh := b.x1-b.x0, b.y1-b.y0
	b.score = float32(sum / float64(n))
	if !(b.score >= boxScore) || min(bw, bh) < leastSide {
		return b, false
	}
	// The detector is trained on boxes that are shrunk by their area over their
	// perimeter (Liao et al., §3.3).
	out := int(math.Round(float64(bw*bh) * unclip / float64(2*(bw+bh))))
	b.x0, b.y0, b.x1, b.y1 = b.x0-out, b.y0-out, b.x1+out, b.y1+out
	return b.within(w, h), true
}

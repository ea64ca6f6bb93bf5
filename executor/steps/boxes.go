package steps

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"inferplan/engine"
)

// box is the part of an image with pixels [x0,x1) by [y0,y1), with the detector's score.
type box struct {
	x0, y0, x1, y1 int
	score          float32
}

// boxBytes is the size of a box in a tensor: five floats.
const boxBytes = 20

// write writes the box into a tensor.
func (b *box) write(dst []byte) {
	for i, v := range [5]float32{float32(b.x0), float32(b.y0), float32(b.x1), float32(b.y1), b.score} {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

// readBox reads a box (two corners in pixels, and a score) from a tensor. Corners below 0 or not a number become
// 0.
func readBox(data []byte) box {
	pixel := func(i int) int {
		if v := floatAt(data, i); v > 0 {
			return int(min(v, 1<<20))
		}
		return 0 // also for NaN
	}
	return box{pixel(0), pixel(1), pixel(2), pixel(3), floatAt(data, 4)}
}

// itemBox returns box number `item` of several. If there are not so many, it returns an empty one.
func itemBox(data []byte, item int64) box {
	if item < 0 || item >= int64(len(data)/boxBytes) {
		return box{}
	}
	return readBox(data[item*boxBytes:])
}

// clipTo returns the part of a box inside an image of w by h pixels.
func (b box) clipTo(w, h int) box {
	b.x0, b.y0, b.x1, b.y1 = max(b.x0, 0), max(b.y0, 0), min(b.x1, w), min(b.y1, h)
	return b
}

// Parameters of PaddleOCR's DBPostProcess: the least score of a pixel of text, the least score of a box, the ratio by
// which a box is enlarged, and the least side of a box in pixels.
const (
	pixelScore  = .3
	boxScore    = .6
	unclipRatio = 1.5
	minSide     = 3
)

// maxBoxes bounds the boxes of an image. If there are more, the largest are used.
const maxBoxes = 16

// The outputs of the step ocr-boxes: the boxes in reading order, followed by zeros, and their number.
var (
	boxesSpec = engine.Spec{Name: "boxes", Type: engine.F32, Shape: []int64{engine.BatchDim, maxBoxes, 5}}
	countSpec = engine.Spec{Name: "count", Type: engine.I32, Shape: []int64{engine.BatchDim, 1}}
)

// bindBox binds the step ocr-box to the tensors of the model before it, a detector of text: it finds the largest line of
// text in the detector's map, which has a score for each pixel. It returns the step's outputs (a box of five numbers)
// and the function that computes them for a request. That returns the branch that the request takes: 0 if there is a
// line, else 1, with a box of zeros.
func bindBox(t *Tensors) ([]engine.Spec, BoundPost, error) {
	f, err := newBoxFinder("ocr-box", t)
	if err != nil {
		return nil, nil, err
	}
	specs := []engine.Spec{{Name: "box", Type: engine.F32, Shape: []int64{engine.BatchDim, 5}}}
	return specs, func(dst, outputs [][]byte) int32 {
		r := f.find(outputs[0])
		defer f.regionPool.Put(r)
		if len(r.boxes) == 0 {
			clear(dst[0])
			return 1
		}
		r.boxes[0].write(dst[0])
		return 0
	}, nil
}

// bindBoxes binds the step ocr-boxes to the tensors of the model before it, a detector of text: it finds all lines of
// text in the detector's map, up to the maxBoxes largest, and puts them into reading order. It returns the step's
// outputs (boxes and their number) and the function that computes them. That returns the branch that the request takes:
// 0 if there is a line, else 1.
func bindBoxes(t *Tensors) ([]engine.Spec, BoundPost, error) {
	f, err := newBoxFinder("ocr-boxes", t)
	if err != nil {
		return nil, nil, err
	}
	return []engine.Spec{boxesSpec, countSpec}, func(dst, outputs [][]byte) int32 {
		r := f.find(outputs[0])
		defer f.regionPool.Put(r)
		list := r.boxes[:min(len(r.boxes), maxBoxes)]
		sortInReadingOrder(list)
		clear(dst[0])
		for i := range list {
			list[i].write(dst[0][i*boxBytes:])
		}
		binary.LittleEndian.PutUint32(dst[1], uint32(len(list)))
		if len(list) == 0 {
			return 1
		}
		return 0
	}, nil
}

// boxFinder finds boxes in the maps of a detector.
type boxFinder struct {
	w, h       int
	regionPool sync.Pool // holds *regionSearch
}

// newBoxFinder returns a finder of boxes in the map that the model before a step gives, of one score per pixel. It
// returns an error if the model's output is no such map. name is the step, for errors.
func newBoxFinder(name string, t *Tensors) (*boxFinder, error) {
	in, err := singleTensor("the step "+name+": the model gives", t.ModelOutputs, engine.F32, 4)
	if err != nil {
		return nil, err
	}
	h, w := int(in.Shape[2]), int(in.Shape[3])
	if in.Shape[1] != 1 || h > 1<<14 || w > 1<<14 {
		return nil, fmt.Errorf("the step %s: the model gives %v, expected one plane of at most 16384 either way", name, in)
	}
	return &boxFinder{w: w, h: h, regionPool: sync.Pool{New: func() any { return &regionSearch{visited: make([]bool, w*h)} }}}, nil
}

// find returns the boxes of a map, the largest first. The caller returns the result to the pool.
func (f *boxFinder) find(data []byte) *regionSearch {
	r := f.regionPool.Get().(*regionSearch)
	r.search(data, f.w, f.h)
	return r
}

// sortInReadingOrder sorts boxes by line, and within a line from left to right. Boxes whose upper edges are less
// than half a height apart are in one line (PaddleOCR's sorted_boxes). It sorts by the upper edge, then moves
// boxes of a line before those to their right.
func sortInReadingOrder(list []box) {
	slices.SortFunc(list, func(a, b box) int { return cmp.Or(cmp.Compare(a.y0, b.y0), cmp.Compare(a.x0, b.x0)) })
	for i := 1; i < len(list); i++ {
		for k := i; k > 0; k-- {
			a, b := &list[k-1], &list[k]
			if 2*(b.y0-a.y0) >= min(a.y1-a.y0, b.y1-b.y0) || b.x0 >= a.x0 {
				break
			}
			*a, *b = *b, *a
		}
	}
}

// regionSearch is the memory of a search for boxes.
type regionSearch struct {
	visited []bool  // by pixel
	stack   []int32 // pixels whose neighbours have not been visited
	boxes   []box
}

// area returns the number of pixels of the box.
func (b *box) area() int { return (b.x1 - b.x0) * (b.y1 - b.y0) }

// search sets r.boxes to the boxes around all regions of text in a map of w by h scores (float32 in data), the largest
// first. A region is a set of neighbouring pixels with scores above pixelScore.
func (r *regionSearch) search(data []byte, w, h int) {
	clear(r.visited)
	r.boxes = r.boxes[:0]
	for i := range w * h {
		if r.visited[i] || !(floatAt(data, i) > pixelScore) {
			continue
		}
		if b, ok := r.growRegion(data, w, h, int32(i)); ok && b.area() > 0 {
			r.boxes = append(r.boxes, b)
		}
	}
	slices.SortStableFunc(r.boxes, func(a, b box) int { return cmp.Compare(b.area(), a.area()) })
}

// growRegion returns the box around the connected region of text pixels that contains pixel seed, and marks the
// region as visited. ok is false if it is too small or its score too low.
func (r *regionSearch) growRegion(data []byte, w, h int, seed int32) (b box, ok bool) {
	b = box{x0: w, y0: h}

	// Visit all connected pixels of text.
	sum, n := 0.0, 0
	r.visited[seed] = true
	r.stack = append(r.stack[:0], seed)
	for len(r.stack) > 0 {
		i := int(r.stack[len(r.stack)-1])
		r.stack = r.stack[:len(r.stack)-1]
		x, y := i%w, i/w
		b.x0, b.y0, b.x1, b.y1 = min(b.x0, x), min(b.y0, y), max(b.x1, x+1), max(b.y1, y+1)
		sum, n = sum+float64(floatAt(data, i)), n+1
		for dy := -1; dy <= 1; dy++ {
			for dx := -1; dx <= 1; dx++ {
				if u, v := x+dx, y+dy; u >= 0 && v >= 0 && u < w && v < h {
					if k := v*w + u; !r.visited[k] && floatAt(data, k) > pixelScore {
						r.visited[k] = true
						r.stack = append(r.stack, int32(k))
					}
				}
			}
		}
	}

	// Judge the region by its mean score and its size.
	bw, bh := b.x1-b.x0, b.y1-b.y0
	b.score = float32(sum / float64(n))
	if !(b.score >= boxScore) || min(bw, bh) < minSide {
		return b, false
	}
	// Enlarge the box, because the detector is trained on boxes that are shrunk by their area over their perimeter
	// (Liao et al., §3.3).
	margin := int(math.Round(float64(bw*bh) * unclipRatio / float64(2*(bw+bh))))
	b.x0, b.y0, b.x1, b.y1 = b.x0-margin, b.y0-margin, b.x1+margin, b.y1+margin
	return b.clipTo(w, h), true
}

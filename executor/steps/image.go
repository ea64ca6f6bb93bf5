package steps

import (
	"encoding/binary"
	"fmt"
	"math"

	"inferplan/engine"
)

// image is a picture as bytes: rows of red, green and blue.
type image struct {
	pix  []byte
	w, h int
}

// planes is an input of a model: a plane of floats for each of blue, green and red.
type planes struct {
	dst  []byte
	w, h int
}

// set sets the colour c of a pixel.
func (p *planes) set(c, x, y int, v float32) {
	binary.LittleEndian.PutUint32(p.dst[4*((c*p.h+y)*p.w+x):], math.Float32bits(v))
}

// The mean and standard deviation of ImageNet, in the order in which PaddleOCR applies them to blue, green and red.
var (
	mean      = [3]float32{0.485, 0.456, 0.406}
	deviation = [3]float32{0.229, 0.224, 0.225}
)

// imageSpecs returns what the client sends to the step ocr-image: an image in bytes, height by width by colour, of
// the size that the model takes.
func imageSpecs(t *Tensors) ([]engine.Spec, error) {
	in, err := singleTensor("the step ocr-image: the model takes", t.ModelInputs, engine.F32, 4)
	if err != nil {
		return nil, err
	}
	if in.Shape[1] != 3 {
		return nil, fmt.Errorf("the step ocr-image: the model takes %v, expected three planes", in)
	}
	return []engine.Spec{{Name: "image", Type: engine.U8, Shape: []int64{engine.BatchDim, in.Shape[2], in.Shape[3], 3}}}, nil
}

// bindImage binds the step ocr-image, which turns the client's image of bytes (height by width by colour) into the input
// of the model behind it: one plane of float32 for each colour, in reverse order, normalised by mean and deviation. It
// returns the function that computes this for a request into dst.
func bindImage(t *Tensors) (BoundPre, error) {
	expected, err := imageSpecs(t)
	if err != nil {
		return nil, err
	}
	if len(t.ClientInputs) != 1 || !sameForm(t.ClientInputs[0], expected[0]) {
		return nil, fmt.Errorf("the step ocr-image: the client sends %v, expected %v", t.ClientInputs, expected)
	}
	h, w := int(expected[0].Shape[1]), int(expected[0].Shape[2])

	// The normalised value of each byte, by colour.
	var table [3][256]float32
	for c := range table {
		for v := range table[c] {
			table[c][v] = (float32(v)/255 - mean[c]) / deviation[c]
		}
	}
	return func(_ int, _ int64, dst []byte, client, _ [][]byte) {
		src := client[0]
		for c := range 3 {
			plane := dst[4*c*h*w:]
			for i := range h * w {
				binary.LittleEndian.PutUint32(plane[4*i:], math.Float32bits(table[c][src[3*i+2-c]]))
			}
		}
	}, nil
}

// upsideDownScore is the score from which on a line counts as upside down (PaddleOCR's cls_thresh).
const upsideDownScore = .9

// bindLine binds the step that cuts the line of a box out of the client's image. If the module reads several boxes,
// it is the box of the item.
func bindLine(t *Tensors) (BoundPre, error) { return bindCrop("ocr-line", t, false) }

// bindUpright binds the step that does the same and turns lines that the classifier of orientation calls upside down.
func bindUpright(t *Tensors) (BoundPre, error) { return bindCrop("ocr-upright", t, true) }

// bindCrop binds the step that cuts a line of text out of the client's image and resizes it to the model's input.
// With turns (the step ocr-upright) it turns lines that a classifier scored as upside down.
func bindCrop(name string, t *Tensors, turns bool) (BoundPre, error) {
	in, err := singleTensor("the step "+name+": the model takes", t.ModelInputs, engine.F32, 4)
	if err != nil {
		return nil, err
	}
	client, err := singleTensor("the step "+name+": the client sends", t.ClientInputs, engine.U8, 4)
	if err != nil {
		return nil, err
	}
	if in.Shape[1] != 3 || client.Shape[3] != 3 || !readsBoxes(t.ModuleInputs, turns) {
		return nil, fmt.Errorf("the step %s: the module reads %v, expected a box or boxes (steps ocr-box, ocr-boxes) and, for ocr-upright, two scores of float32", name, t.ModuleInputs)
	}
	h, w := int(in.Shape[2]), int(in.Shape[3])
	ih, iw := int(client.Shape[1]), int(client.Shape[2])
	return func(_ int, item int64, dst []byte, client, read [][]byte) {
		turn := turns && floatAt(read[len(read)-1], 1) > upsideDownScore
		cropLine(&planes{dst, w, h}, &image{client[0], iw, ih}, itemBox(read[0], item), turn)
	}, nil
}

// readsBoxes returns true if the tensors that a module reads are those that a crop step needs: a box, or boxes with
// their number. If turns is true, the step turns upside-down lines, and the two scores of orientation must follow.
func readsBoxes(reads []engine.Spec, turns bool) bool {
	if turns {
		n := len(reads) - 1
		if n < 1 || reads[n].Type != engine.F32 || reads[n].BytesAt(1) != 8 {
			return false
		}
		reads = reads[:n]
	}
	switch len(reads) {
	case 1:
		return reads[0].Type == engine.F32 && reads[0].BytesAt(1) == boxBytes
	case 2:
		return sameForm(reads[0], boxesSpec) && sameForm(reads[1], countSpec)
	}
	return false
}

// cropLine writes the part of an image in a box into the planes, resized to their height, with the width that
// keeps its shape, but at most theirs. Colours are between -1 and 1, in reverse order, and 0 right of the line.
func cropLine(p *planes, im *image, b box, upsideDown bool) {
	clear(p.dst)
	b = b.clipTo(im.w, im.h)
	bw, bh := b.x1-b.x0, b.y1-b.y0
	if bw <= 0 || bh <= 0 {
		return
	}
	width := min(p.w, max(1, int(math.Ceil(float64(p.h)*float64(bw)/float64(bh)))))
	sx, sy := float32(bw)/float32(width), float32(bh)/float32(p.h)
	for y := range p.h {
		for x := range width {
			tx, ty := x, y
			if upsideDown {
				tx, ty = width-1-x, p.h-1-y
			}
			px := im.colourAt(b, (float32(tx)+.5)*sx-.5, (float32(ty)+.5)*sy-.5)
			for c := range 3 {
				p.set(c, x, y, px[2-c]/127.5-1)
			}
		}
	}
}

// colourAt returns the colour at a point of box b, in pixels from its corner, interpolated between the four pixels
// around it.
func (im *image) colourAt(b box, x, y float32) (colour [3]float32) {
	x, y = min(max(x, 0), float32(b.x1-b.x0-1)), min(max(y, 0), float32(b.y1-b.y0-1))
	x0, y0 := int(x), int(y)
	x1, y1 := min(x0+1, b.x1-b.x0-1), min(y0+1, b.y1-b.y0-1)
	fx, fy := x-float32(x0), y-float32(y0)
	row0, row1 := (b.y0+y0)*im.w+b.x0, (b.y0+y1)*im.w+b.x0
	for c := range 3 {
		top := float32(im.pix[3*(row0+x0)+c])*(1-fx) + float32(im.pix[3*(row0+x1)+c])*fx
		bottom := float32(im.pix[3*(row1+x0)+c])*(1-fx) + float32(im.pix[3*(row1+x1)+c])*fx
		colour[c] = top*(1-fy) + bottom*fy
	}
	return colour
}

// floatAt returns the i-th number of a tensor.
func floatAt(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

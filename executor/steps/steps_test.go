package steps_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inferplan/engine"
	"inferplan/executor/steps"
	"inferplan/formats"
)

func spec(name string, of engine.DType, shape ...int64) []engine.Spec {
	return []engine.Spec{{Name: name, Type: of, Shape: append([]int64{engine.BatchDim}, shape...)}}
}

func floats(list ...float32) []byte {
	out := make([]byte, 0, 4*len(list))
	for _, v := range list {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

func numbers(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// The names that documents may hold are those that can be bound.
func TestDocumentNamesCanBeBound(t *testing.T) {
	for _, name := range formats.PreSteps {
		if _, err := steps.BindPre(name, &steps.Tensors{}); err != nil && strings.Contains(err.Error(), "unknown") {
			t.Error(err)
		}
	}
	for _, name := range formats.PostSteps {
		if _, _, err := steps.BindPost(name, &steps.Tensors{}); err != nil && strings.Contains(err.Error(), "unknown") {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name string
		t    steps.Tensors
	}{
		{"upside-down", steps.Tensors{}},
		{"ocr-image", steps.Tensors{ModelInputs: spec("x", engine.F32, 1, 8, 8)}},
		{"ocr-image", steps.Tensors{ModelInputs: spec("x", engine.F32, 3, 8, 8), ClientInputs: spec("x", engine.U8, 9, 8, 3)}},
		{"ocr-line", steps.Tensors{ModelInputs: spec("x", engine.F32, 3, 8, 8), ClientInputs: spec("x", engine.U8, 9, 8, 3)}},
		{"client", steps.Tensors{ModelInputs: spec("x", engine.F32, 3, 8, 8), ClientInputs: spec("x", engine.U8, 3, 8, 8)}},
	} {
		if _, err := steps.BindPre(c.name, &c.t); err == nil {
			t.Errorf("%s is bound to %+v", c.name, c.t)
		}
	}
}

// The box of the largest region of text is pushed outwards by its area over its
// perimeter; small, faint and missing regions are none.
func TestBoxSurroundsLargestRegion(t *testing.T) {
	const w, h = 60, 40
	gives, post, err := steps.BindPost("ocr-box", &steps.Tensors{ModelOutputs: spec("map", engine.F32, 1, h, w)})
	if err != nil || len(gives) != 1 || gives[0].BytesAt(1) != 20 {
		t.Fatal(gives, err)
	}
	region := func(data []byte, x0, y0, x1, y1 int, v float32) {
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				binary.LittleEndian.PutUint32(data[4*(y*w+x):], math.Float32bits(v))
			}
		}
	}
	data, out := make([]byte, 4*w*h), make([]byte, 20)
	if way := post([][]byte{out}, [][]byte{data}); way != 1 || slices.Max(numbers(out)) != 0 {
		t.Errorf("an empty map: way %d, box %v", way, numbers(out))
	}
	region(data, 0, 30, 60, 40, .5)  // faint, though it is the largest
	region(data, 50, 2, 52, 20, .9)  // thin
	region(data, 10, 10, 40, 20, .8) // 300 pixels, perimeter 80: out by 5.6
	if way := post([][]byte{out}, [][]byte{data}); way != 0 || !slices.Equal(numbers(out), []float32{4, 4, 46, 26, .8}) {
		t.Errorf("way %d, box %v", way, numbers(out))
	}
}

// All boxes of a page come in reading order, zeros behind the last, and a step that
// cuts takes that of its item.
func TestBoxesAreInReadingOrder(t *testing.T) {
	const w, h = 64, 64
	gives, post, err := steps.BindPost("ocr-boxes", &steps.Tensors{ModelOutputs: spec("map", engine.F32, 1, h, w)})
	if err != nil || len(gives) != 2 || steps.PathCount("ocr-boxes") != 2 {
		t.Fatal(gives, err)
	}
	data, boxes, count := make([]byte, 4*w*h), make([]byte, gives[0].BytesAt(1)), make([]byte, gives[1].BytesAt(1))
	if way := post([][]byte{boxes, count}, [][]byte{data}); way != 1 || slices.Max(count) != 0 {
		t.Errorf("an empty map: way %d, %v boxes", way, count)
	}
	for _, r := range [][4]int{{36, 11, 56, 19}, {10, 40, 50, 50}, {8, 12, 28, 20}} { // the third is left of the first, on its line
		for y := r[1]; y < r[3]; y++ {
			for x := r[0]; x < r[2]; x++ {
				binary.LittleEndian.PutUint32(data[4*(y*w+x):], math.Float32bits(.9))
			}
		}
	}
	way := post([][]byte{boxes, count}, [][]byte{data})
	got := numbers(boxes)
	if n := binary.LittleEndian.Uint32(count); way != 0 || n != 3 || slices.Max(got[15:]) != 0 {
		t.Fatalf("way %d, %d boxes, %v", way, n, got)
	}
	if !(got[0] < 8 && got[5] > 28 && got[11] > 20) {
		t.Errorf("boxes %v, expected those on one line from left to right, then the one below", got[:15])
	}
	for _, turns := range []bool{false, true} {
		name, reads := "ocr-line", gives
		if turns {
			name, reads = "ocr-upright", append(slices.Clone(gives), spec("scores", engine.F32, 2)...)
		}
		cut, err := steps.BindPre(name, &steps.Tensors{ModelInputs: spec("x", engine.F32, 3, 3, 6), ClientInputs: spec("image", engine.U8, h, w, 3), ModuleInputs: reads})
		if err != nil {
			t.Fatal(err)
		}
		img, dst := make([]byte, 3*w*h), make([]byte, 4*3*3*6)
		for i := 40 * w; i < 50*w; i++ { // the third line is white
			copy(img[3*i:], []byte{255, 255, 255})
		}
		for item, want := range []float32{-1, -1, 1, 0} {
			cut(0, int64(item), dst, [][]byte{img}, [][]byte{boxes, count, floats(.9, .1)}[:len(reads)])
			if v := slices.Max(numbers(dst)); (v > .9) != (want == 1) || want == 0 && v != 0 {
				t.Errorf("%s, item %d: at most %v, expected %v", name, item, v, want)
			}
		}
	}
	if _, err := steps.BindPre("ocr-line", &steps.Tensors{ModelInputs: spec("x", engine.F32, 3, 3, 6), ClientInputs: spec("image", engine.U8, h, w, 3), ModuleInputs: gives[:1]}); err == nil {
		t.Error("boxes without their number are taken for a box")
	}
}

// Places that repeat a class count once, blanks not at all, and a class that
// comes again behind a blank twice.
func TestTextIsDecodedByCTC(t *testing.T) {
	gives, post, err := steps.BindPost("ocr-text", &steps.Tensors{ModelOutputs: spec("scores", engine.F32, 6, 3)})
	if err != nil || len(gives) != 2 {
		t.Fatal(gives, err)
	}
	scores := floats(.1, .8, .1, 0, .9, .1, 1, 0, 0, 0, .6, .4, .2, .3, .5, 1, 0, 0)
	codes, score := make([]byte, 24), make([]byte, 4)
	post([][]byte{codes, score}, [][]byte{scores})
	var got []uint32
	for i := 0; i < len(codes); i += 4 {
		got = append(got, binary.LittleEndian.Uint32(codes[i:]))
	}
	if s := numbers(score)[0]; !slices.Equal(got, []uint32{1, 1, 2, 0, 0, 0}) || math.Abs(float64(s)-(.8+.6+.5)/3) > 1e-6 {
		t.Errorf("codes %v, score %v", got, s)
	}
}

// A line is cut out and resized to the height of the model, as wide as it is
// then; upside down it is turned. The colours come as blue, green, red.
func TestLineIsCroppedAndTurned(t *testing.T) {
	const w, h = 8, 4
	tensors := steps.Tensors{ModelInputs: spec("x", engine.F32, 3, 2, 6), ClientInputs: spec("image", engine.U8, h, w, 3), ModuleInputs: append(spec("box", engine.F32, 5), spec("scores", engine.F32, 2)...)}
	cut, err := steps.BindPre("ocr-upright", &tensors)
	if err != nil {
		t.Fatal(err)
	}
	img := make([]byte, 3*w*h)
	for y := range h {
		for x := range w {
			copy(img[3*(y*w+x):], []byte{255, byte(10 * x), byte(20 * y)})
		}
	}
	dst := make([]byte, 4*3*2*6)
	for _, c := range []struct {
		scores []byte
		blue   [2]float32 // of the two rows
		green  [2]float32 // of the first and the last column
	}{
		{floats(.9, .1), [2]float32{20, 40}, [2]float32{20, 50}},
		{floats(.05, .95), [2]float32{40, 20}, [2]float32{50, 20}},
	} {
		cut(0, 0, dst, [][]byte{img}, [][]byte{floats(2, 1, 6, 3, 1), c.scores})
		got := numbers(dst)
		at := func(plane, y, x int) float32 { return (got[(plane*2+y)*6+x] + 1) * 127.5 }
		for y := range 2 {
			if math.Abs(float64(at(0, y, 0)-c.blue[y])) > .01 || math.Abs(float64(at(2, y, 0)-255)) > .01 {
				t.Errorf("row %d: blue %v, expected %v; red %v", y, at(0, y, 0), c.blue[y], at(2, y, 0))
			}
		}
		if math.Abs(float64(at(1, 0, 0)-c.green[0])) > .01 || math.Abs(float64(at(1, 0, 3)-c.green[1])) > .01 {
			t.Errorf("green %v to %v, expected %v", at(1, 0, 0), at(1, 0, 3), c.green)
		}
		if got[4] != 0 || got[5] != 0 {
			t.Errorf("behind the line %v", got[4:6])
		}
	}
}

// An image is normalised as PaddleOCR does.
func TestImageIsNormalised(t *testing.T) {
	takes := spec("x", engine.F32, 3, 1, 2)
	sent, err := steps.ClientSpecs("ocr-image", &steps.Tensors{ModelInputs: takes})
	if err != nil || sent[0].BytesAt(1) != 6 {
		t.Fatal(sent, err)
	}
	pre, err := steps.BindPre("ocr-image", &steps.Tensors{ModelInputs: takes, ClientInputs: sent})
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 24)
	pre(0, 0, dst, [][]byte{{255, 0, 51, 0, 0, 0}}, nil)
	want := []float32{(.2 - .485) / .229, -.485 / .229, -.456 / .224, -.456 / .224, (1 - .406) / .225, -.406 / .225}
	for i, v := range numbers(dst) {
		if math.Abs(float64(v-want[i])) > 1e-5 {
			t.Errorf("place %d: %v, expected %v", i, v, want[i])
		}
	}
}

// Whatever a detector and a classifier answer, no step fails, and what is behind
// them is numbers.
func TestNonsenseFailsNoStep(t *testing.T) {
	const w, h = 12, 9
	_, post, err := steps.BindPost("ocr-box", &steps.Tensors{ModelOutputs: spec("map", engine.F32, 1, h, w)})
	if err != nil {
		t.Fatal(err)
	}
	cut, err := steps.BindPre("ocr-upright", &steps.Tensors{ModelInputs: spec("x", engine.F32, 3, 4, 7), ClientInputs: spec("image", engine.U8, h, w, 3),
		ModuleInputs: append(spec("box", engine.F32, 5), spec("scores", engine.F32, 2)...)})
	if err != nil {
		t.Fatal(err)
	}
	img, dst := make([]byte, 3*w*h), make([]byte, 4*3*4*7)
	rapid.Check(t, func(t *rapid.T) {
		odd := rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -1, .9, 1e30}))
		data := floats(rapid.SliceOfN(odd, w*h, w*h).Draw(t, "map")...)
		box := make([]byte, 20)
		post([][]byte{box}, [][]byte{data})
		if rapid.Bool().Draw(t, "any box") {
			box = floats(rapid.SliceOfN(odd, 5, 5).Draw(t, "box")...)
		}
		cut(0, 0, dst, [][]byte{img}, [][]byte{box, floats(rapid.SliceOfN(odd, 2, 2).Draw(t, "scores")...)})
		for i, v := range numbers(dst) {
			if !(v >= -1 && v <= 1) {
				t.Fatalf("place %d is %v", i, v)
			}
		}
	})
}

package literal

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// npy is an array as NumPy's version 1 saves it.
func npy(descr, shape string, body []byte) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, shape)
	return append(append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(header)))...), append([]byte(header), body...)...)
}

func TestParseReadsNestedListsAndFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	le := binary.LittleEndian
	for text, want := range map[string]Value{
		"16000":                               {[]int64{}, []float64{16000}},
		"-1.5e3":                              {[]int64{}, []float64{-1500}},
		"true":                                {[]int64{}, []float64{1}},
		"[[1,2],[3,4]]":                       {[]int64{2, 2}, []float64{1, 2, 3, 4}},
		"[true, false]":                       {[]int64{2}, []float64{1, 0}},
		"[]":                                  {[]int64{0}, nil},
		put("a.json", []byte("[101, 102]\n")): {[]int64{2}, []float64{101, 102}},
		put("i8.npy", npy("<i8", "2,", le.AppendUint64(le.AppendUint64(nil, 101), math.MaxUint64))):                          {[]int64{2}, []float64{101, -1}},
		put("f4.npy", npy("<f4", "1, 2", le.AppendUint32(le.AppendUint32(nil, math.Float32bits(.5)), math.Float32bits(-2)))): {[]int64{1, 2}, []float64{.5, -2}},
		put("f2.npy", npy("<f2", "3,", []byte{0, 0x3c, 0, 0xc0, 1, 0})):                                                      {[]int64{3}, []float64{1, -2, math.Ldexp(1, -24)}},
		put("one.npy", npy("|b1", "", []byte{1})):                                                                            {[]int64{}, []float64{1}},
	} {
		got, err := Parse(text)
		if err != nil || !slices.Equal(got.Shape, want.Shape) || !slices.Equal(got.Values, want.Values) {
			t.Errorf("%s: %v %v, expected %v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"":                               "expected a number, true, false",
		"sixteen":                        "expected a number, true, false",
		"1 2":                            "expected a number, true, false",
		`["a"]`:                          "expected a number, true, false",
		"[[1,2],[3]]":                    "its lists differ in length",
		"[1,[2]]":                        "its lists differ in length",
		"[[1],2]":                        "a number stands beside a list",
		"1e999":                          "too large",
		filepath.Join(dir, "absent.npy"): "no such file",
		put("text.npy", []byte("x,y\n")): "not a NumPy file",
		put("big.npy", npy(">f4", "1,", []byte{0})):                                                   "big-endian",
		put("cut.npy", npy("<f4", "4,", []byte{0})):                                                   "1 bytes of values, expected 16",
		put("text2.npy", npy("<U4", "1,", nil)):                                                       `elements "<U4"`,
		put("nan.npy", npy("<f4", "1,", le.AppendUint32(nil, math.Float32bits(float32(math.NaN()))))): "no numbers",
		put("huge.npy", npy("<f4", "99999999999, 99999999", nil)):                                     "of shape",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", text, err, says)
		}
	}
}

func FuzzNPY(f *testing.F) {
	f.Add(npy("<f4", "1, 2", make([]byte, 8)))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseNPY(data)
		if err != nil {
			return
		}
		n := int64(1)
		for _, d := range v.Shape {
			n *= d
		}
		if n != int64(len(v.Values)) {
			t.Fatalf("%d values of shape %v", len(v.Values), v.Shape)
		}
	})
}

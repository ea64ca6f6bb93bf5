package literal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Value holds a tensor's values with its dimensions, of which a single value has none. Booleans are 0 and 1.
type Value struct {
	Shape  []int64
	Values []float64
}

// maxBytes bounds the bytes that are read of a file.
const maxBytes = 256 << 20

// Parse returns the tensor that a text gives: a number, true or false, a JSON array of them (nested as the
// dimensions are), or the name of a file that ends in .npy or .json.
func Parse(text string) (Value, error) {
	data, name, parse := []byte(text), strconv.Quote(text), parseJSON
	if extension := strings.ToLower(filepath.Ext(text)); extension == ".npy" || extension == ".json" {
		var err error
		if data, err = readFile(text); err != nil {
			return Value{}, err
		}
		if name = text; extension == ".npy" {
			parse = ParseNPY
		}
	}
	v, err := parse(data)
	if err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// readFile returns the content of a file of values, at most maxBytes.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read values: %w", err)
	case len(data) > maxBytes:
		return nil, fmt.Errorf("%s: more than %d MiB, expected the values of one tensor", name, maxBytes>>20)
	}
	return data, nil
}

var errJSON = errors.New("expected a number, true, false, a JSON array of them, or a file that ends in .npy or .json")

// parseJSON reads a JSON number or nested lists of numbers as a tensor. All lists of a level have the same length.
func parseJSON(data []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var x any
	if err := d.Decode(&x); err != nil {
		return Value{}, errJSON
	}
	if _, err := d.Token(); err != io.EOF {
		return Value{}, errJSON
	}
	v := Value{Shape: []int64{}}
	for list, isList := x.([]any); isList; list, isList = list[0].([]any) { // the first element of each level gives the dimensions
		if v.Shape = append(v.Shape, int64(len(list))); len(list) == 0 {
			break
		}
	}
	err := v.flatten(x, 0)
	return v, err
}

// flatten appends the numbers of x, which lies depth lists deep, to v.Values in order. true counts 1, false 0. It
// fails if x does not have v.Shape.
func (v *Value) flatten(x any, depth int) error {
	switch x := x.(type) {
	case []any:
		if depth >= len(v.Shape) || int64(len(x)) != v.Shape[depth] {
			return fmt.Errorf("its lists differ in length: expected %v everywhere", v.Shape)
		}
		for _, e := range x {
			if err := v.flatten(e, depth+1); err != nil {
				return err
			}
		}
		return nil
	case json.Number:
		n, err := x.Float64()
		if err != nil {
			return fmt.Errorf("%s is too large", x)
		}
		v.Values = append(v.Values, n)
	case bool:
		n := 0.0
		if x {
			n = 1
		}
		v.Values = append(v.Values, n)
	default:
		return errJSON
	}
	if depth != len(v.Shape) {
		return fmt.Errorf("a number stands beside a list: expected the dimensions %v", v.Shape)
	}
	return nil
}

// ParseNPY reads an array as NumPy saves it, in versions 1 to 3 of its format.
func ParseNPY(data []byte) (Value, error) {
	// The file begins with a magic text, the format's version and the header's length: two bytes, four from
	// version 2 on.
	if len(data) < 10 || string(data[:6]) != "\x93NUMPY" {
		return Value{}, errors.New("not a NumPy file (.npy)")
	}
	size, offset := int(data[8])|int(data[9])<<8, 10
	if data[6] >= 2 {
		if len(data) < 12 {
			return Value{}, errors.New("a NumPy file that was cut off")
		}
		size, offset = size|int(data[10])<<16|int(data[11])<<24, 12
	}
	if size < 0 || size > len(data)-offset {
		return Value{}, errors.New("a NumPy file that was cut off")
	}

	// The header is a Python dictionary. Read the type of the elements, their order and the shape.
	header, body := string(data[offset:offset+size]), data[offset+size:]
	descr, ok := quotedText(header, "'descr':")
	if !ok || len(descr) < 2 {
		return Value{}, errors.New("a NumPy file of records or objects: expected plain numbers")
	}
	if descr[0] == '>' {
		return Value{}, errors.New("a NumPy file of big-endian numbers: save it with astype('<f4')")
	}
	if strings.Contains(header, "'fortran_order': True") {
		return Value{}, errors.New("a NumPy file in Fortran order: save it with numpy.ascontiguousarray")
	}
	decode, width := decoder(descr[1:])
	if decode == nil {
		return Value{}, fmt.Errorf("a NumPy file of elements %q: expected floats, integers or booleans", descr)
	}
	v := Value{Shape: []int64{}}
	_, shape, ok := strings.Cut(header, "'shape':")
	shape, _, _ = strings.Cut(strings.TrimLeft(shape, " ("), ")")
	if !ok {
		return Value{}, errors.New("a NumPy file without a shape")
	}
	n := int64(1)
	for part := range strings.SplitSeq(shape, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		d, err := strconv.ParseInt(part, 10, 64)
		if err != nil || d < 0 || d > maxBytes || n*max(d, 1) > maxBytes {
			return Value{}, fmt.Errorf("a NumPy file of shape (%s)", shape)
		}
		v.Shape, n = append(v.Shape, d), n*d
	}

	// Read the values.
	if int64(len(body)) != n*int64(width) {
		return Value{}, fmt.Errorf("a NumPy file with %d bytes of values, expected %d for %s%v", len(body), n*int64(width), descr, v.Shape)
	}
	v.Values = make([]float64, 0, n)
	for ; len(body) > 0; body = body[width:] {
		x := decode(body)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return Value{}, errors.New("a NumPy file with values that are no numbers (NaN or infinite)")
		}
		v.Values = append(v.Values, x)
	}
	return v, nil
}

// quotedText returns the text in single quotes behind a key in the header of a NumPy file, or false if there is
// none.
func quotedText(header, key string) (string, bool) {
	_, remaining, ok := strings.Cut(header, key)
	if remaining = strings.TrimSpace(remaining); !ok || remaining == "" || remaining[0] != '\'' {
		return "", false
	}
	text, _, ok := strings.Cut(remaining[1:], "'")
	return text, ok
}

package oip

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"inferplan/engine"
	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
)

func TestFastFloatIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	texts := []string{"0", "-0", "0.0", "1", "0.1", "1e5", "1E-5", "16777217", "16777216.5", "0.000000059604644775390625", "3.4028235e38", "3.5e38", "1e-46", "1.1754944e-38", "0.00000000000000001", "123456789012345678", "1e22", "1e23", "0.0000000000000000000001", "8388608.5", "8388609.5"}
	for range 200_000 {
		switch rng.IntN(3) {
		case 0:
			texts = append(texts, strconv.FormatFloat(float64(rng.Float32()*2-1), 'g', -1, 32))
		case 1:
			texts = append(texts, strconv.FormatFloat(math.Float64frombits(rng.Uint64()), 'g', rng.IntN(17)+1, 64))
		default:
			texts = append(texts, strconv.FormatFloat(rng.NormFloat64()*1e3, 'f', rng.IntN(14), 64))
		}
	}
	fast := 0
	for _, s := range texts {
		v, n, ok := fastFloat([]byte(s + ","))
		if !ok {
			continue
		}
		fast++
		want, err := strconv.ParseFloat(s, 64)
		if err != nil || n != len(s) || math.Float64bits(v) != math.Float64bits(want) {
			t.Fatalf("%s: got %v in %d bytes, want %v (%v)", s, v, n, want, err)
		}
		if roundsToFP32(v) {
			if want, _ := strconv.ParseFloat(s, 32); float32(v) != float32(want) {
				t.Fatalf("%s as FP32: got %v, want %v", s, float32(v), float32(want))
			}
		}
	}
	if fast < len(texts)/2 {
		t.Errorf("only %d of %d took the fast way", fast, len(texts))
	}
	for _, s := range []string{"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "NaN", "0x1"} {
		if v, n, ok := fastFloat([]byte(s + ",")); ok && s != "0x1" {
			t.Errorf("%q: took %v in %d bytes", s, v, n)
		}
	}
}

func TestHalfRoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		f := engine.FromFP16(uint16(h))
		if f != f {
			continue
		}
		if got := engine.ToFP16(float64(f)); got != uint16(h) {
			t.Fatalf("%#04x is %v, which came back as %#04x", h, f, got)
		}
	}
	for _, tc := range []struct {
		v    float64
		want uint16
		ok   bool
	}{
		{1 + 1.0/2048, 0x3C00, true}, {1 + 3.0/2048, 0x3C02, true}, // ties to even
		{65504, 0x7BFF, true}, {65519.99, 0x7BFF, true}, {65520, 0x7C00, false}, {-1e9, 0xFC00, false},
		{0x1p-24, 1, true}, {0x1p-25, 0, true}, {0x1.8p-25, 1, true}, {0x1p-26, 0, true}, {5e-324, 0, true},
	} {
		if got := engine.ToFP16(tc.v); got != tc.want {
			t.Errorf("%v: got %#04x, want %#04x", tc.v, got, tc.want)
		}
		text := strconv.AppendFloat(nil, tc.v, 'g', -1, 64)
		d := decoder{Cursor: jsonscan.Cursor{B: append(text, ',')}}
		if _, err := d.element(FP16, nil); (err == nil) != tc.ok {
			t.Errorf("%v as JSON: %v, accepted should be %v", tc.v, err, tc.ok)
		}
	}
}

// Whatever the decoder takes must be JSON, and what comes out must encode and
// decode to the same tensors.
func FuzzDecodeRequestJSON(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","inputs":[{"name":"x","shape":[2,4],"datatype":"FP32","data":[1,2,3,4,5,6,7,8]}]}`,
		`{"inputs":[{"data":[[1,2],[3,4]],"name":"x","datatype":"INT8","shape":[2,2],"parameters":{"k":true}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}],"parameters":{"timeout":5,"priority":1,"class":"gold","binary_data_output":false,"s":"\u00e9\ud83d\ude00","f":1.5e3}}`,
		`{"inputs":[{"name":"t","shape":[2],"datatype":"BYTES","data":["a\n","b\\"]},{"name":"b","shape":[1],"datatype":"BOOL","data":[true]},{"name":"h","shape":[1],"datatype":"FP16","data":[0.5]},{"name":"u","shape":[1],"datatype":"UINT64","data":[18446744073709551615]}]}`,
		`{"inputs":[{"name":"x","shape":[0],"datatype":"FP64","data":[]},{"name":"s","shape":[],"datatype":"INT32","data":[-7]}]}`,
		`{"inputs":[{"name":"x","shape":[9000000000,9000000000],"datatype":"FP64","data":[1]}]}`,
		`{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}`, `{"inputs":[[[[[[`, `{"inputs":[{"name":"\ud800","shape":[1],"datatype":"FP32","data":[1e39]}]}`,
	} {
		f.Add([]byte(s))
	}
	m := testCatalog(f).Models()[0]
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &Request{}
		if err := decodeRequest(context.Background(), text, nil, m, r); err != nil {
			if err.Error() == "" || err.Code != httplimit.CodeInvalid {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("took what is not JSON: %q", text)
		}
		for i := range r.Inputs {
			if err := checkData(&r.Inputs[i]); err != nil {
				t.Fatalf("input %d: %v", i, err)
			}
		}
		again, err := EncodeRequest(nil, r, false, r.binaryDefault)
		if err != nil {
			t.Fatal(err)
		}
		r2 := &Request{}
		if err := decodeRequest(context.Background(), again, nil, m, r2); err != nil {
			t.Fatalf("%q encoded as %q: %v", text, again, err)
		}
		if len(r2.Inputs) != len(r.Inputs) || r2.ID != r.ID || r2.Timeout != r.Timeout || r2.Class != r.Class || len(r2.Outputs) != len(r.Outputs) {
			t.Fatalf("%q encoded as %q", text, again)
		}
		for i := range r.Inputs {
			if !bytes.Equal(r.Inputs[i].Data, r2.Inputs[i].Data) || r.Inputs[i].Name != r2.Inputs[i].Name {
				t.Fatalf("input %d: %v became %v", i, r.Inputs[i], r2.Inputs[i])
			}
		}
	})
}

// Header and binary tail, cut anywhere.
func FuzzDecodeRequestBinary(f *testing.F) {
	head := `{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}],"parameters":{"binary_data_output":true}}`
	f.Add([]byte(head+string(raw(1, 2, 3, 4))), len(head))
	text := `{"inputs":[{"name":"text","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":9}},{"name":"u8","shape":[1],"datatype":"UINT8","data":[3]}]}`
	f.Add([]byte(text+"\x01\x00\x00\x00a\x00\x00\x00\x00"), len(text))
	f.Add([]byte(head), 3)
	m := testCatalog(f).Models()[1]
	f.Fuzz(func(t *testing.T, body []byte, split int) {
		if split < 0 || split > len(body) {
			return
		}
		r := &Request{Model: "mix"}
		if err := decodeRequest(context.Background(), body[:split], body[split:], m, r); err != nil {
			return
		}
		used := 0
		for i := range r.Inputs {
			used += len(r.Inputs[i].Data)
		}
		if used < len(body)-split {
			t.Fatalf("%d bytes of tail, %d in tensors", len(body)-split, used)
		}
		if err := m.validate(r); err == nil {
			for i := range r.Inputs {
				if err := checkData(&r.Inputs[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

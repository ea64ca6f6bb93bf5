package verify

import (
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// bucketedDocuments ask for a model in two buckets, and for another one.
func bucketedDocuments(lengths *formats.Lengths, padding *formats.Padding) *kind.Documents {
	p := &formats.Profile{Models: []formats.ProfileModel{{Model: "other"}}}
	for _, n := range []int64{128, 32} {
		p.Models = append(p.Models, formats.ProfileModel{Bucket: &formats.Bucket{BaseModel: "text", Padding: padding},
			Inputs: []formats.TensorInfo{{Name: "ids", Shape: []int64{-1, n}, DynamicAxes: []int{1}}}})
		m := &p.Models[len(p.Models)-1]
		m.Model = formats.BucketName("text", m.Inputs)
	}
	margin := .1
	return &kind.Documents{Profile: p, Workload: &formats.Workload{Section: formats.WorkloadModels{
		{Model: "text", Class: "fast", Weight: 2, MinRPS: 10, Margin: &margin, Lengths: lengths}, {Model: "other"}}}}
}

func TestBucketsInPlaceOfModels(t *testing.T) {
	filled := &formats.Padding{Mask: "mask"}
	d := bucketedDocuments(&formats.Lengths{Distribution: formats.LengthsEmpirical, Tokens: []int{5, 32, 100}, Weights: []float64{1, 2, 1}}, filled)
	asked := d.Workload
	said, err := ReplaceByBuckets(d)
	if err != nil {
		t.Fatal(err)
	}
	if got := formats.ModelsOf(asked); len(got) != 2 {
		t.Errorf("the workload itself was changed: %+v", got)
	}
	got := formats.ModelsOf(d.Workload)
	if len(got) != 3 || got[0].Model != "text@32" || got[0].Weight != 1.5 || got[0].MinRPS != 7.5 || got[0].Class != "fast" || *got[0].Margin != .1 ||
		got[1].Model != "text@128" || got[1].Weight != .5 || got[1].Lengths != nil || got[2].Model != "other" || got[2].Weight != 0 {
		t.Errorf("%+v", got)
	}
	if len(said) != 1 || said[0] != "requests for text/fast: 75 % in text@32, 25 % in text@128 (by the lengths of the workload)" {
		t.Errorf("%q", said)
	}
	if again, err := ReplaceByBuckets(d); err != nil || again != nil || len(formats.ModelsOf(d.Workload)) != 3 {
		t.Errorf("a second time: %v, %v", again, err)
	}
	for _, c := range []struct {
		lengths *formats.Lengths
		padding *formats.Padding
		says    string
	}{
		{&formats.Lengths{Distribution: formats.LengthsLognormal, Mean: 60, SD: 60}, filled, "longer than the largest size, 128"},
		{&formats.Lengths{Distribution: formats.LengthsLognormal, Mean: 60, SD: 60, Max: 128}, filled, ""},
		{&formats.Lengths{Distribution: formats.LengthsLognormal, Mean: 60, SD: 60, Max: 128}, nil, "between the sizes 32, 128"},
		{&formats.Lengths{Distribution: formats.LengthsEmpirical, Tokens: []int{32, 128}}, nil, ""},
		{&formats.Lengths{Distribution: formats.LengthsFixed, Mean: 20}, filled, ""},
	} {
		d := bucketedDocuments(c.lengths, c.padding)
		_, err := ReplaceByBuckets(d)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "models[0].lengths")) {
			t.Errorf("%+v, padding %v: %v, expected %q", c.lengths, c.padding, err, c.says)
		}
	}
	// Lengths of a model at one size are refused.
	d = bucketedDocuments(nil, filled)
	formats.ModelsOf(d.Workload)[1].Lengths = &formats.Lengths{Distribution: formats.LengthsFixed, Mean: 20}
	if _, err := ReplaceByBuckets(d); err == nil || !strings.Contains(err.Error(), "models[1].lengths") {
		t.Errorf("lengths of a model at one size: %v", err)
	}
}

package arrivals_test

import (
	"slices"
	"strings"
	"testing"

	"inferplan/formats/arrivals"
)

// A plan lists a model once per SLO class; the columns model and class choose
// among them.
func TestTraceClassesChoose(t *testing.T) {
	models := []string{"a", "a", "b", "c", "c"}
	classes := arrivals.OfClasses([]string{"gold", "silver", "", "", "bulk"})
	for _, c := range []struct {
		name, text string
		want       []int32
	}{
		{"both columns", "t_us,model,class\n1,a,silver\n2,a,gold\n3,a,\n4,b,\n5,b,whatever\n6,c,\n7,c,bulk\n", []int32{1, 0, 0, 2, 2, 3, 4}},
		{"no class: the default", "t_us,model\n1,a\n2,b\n3,c\n", []int32{0, 2, 3}},
	} {
		src, err := arrivals.NewTrace(strings.NewReader(c.text), "trace.csv", models, classes)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := arrivals.Collect(src, 0)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var index []int32
		for _, r := range got {
			index = append(index, r.Model)
		}
		if !slices.Equal(index, c.want) {
			t.Errorf("%s: %v, want %v", c.name, index, c.want)
		}
	}
	// A file without models is for the one model that there is, whatever its classes.
	src, err := arrivals.NewTrace(strings.NewReader("t_us,class\n1,silver\n2,gold\n"), "trace.csv", models[:2], arrivals.OfClasses([]string{"gold", "silver"}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := arrivals.Collect(src, 0)
	if err != nil || len(got) != 2 || got[0].Model != 1 || got[1].Model != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// The caller may say whose a file without models is: of that model the column
// class chooses, without it the entry is as the caller said.
func TestTraceOfOneModel(t *testing.T) {
	models, classes := []string{"a", "a", "b", "b"}, arrivals.OfClasses([]string{"gold", "", "x", "y"})
	for text, want := range map[string][]int32{
		"t_us,class\n1,x\n2,\n3,y\n": {2, 2, 3},
		"t_us\n1\n2\n":               {3, 3},
		"t_us,model\n1,a\n2,b\n":     {1, 2},
	} {
		src, err := arrivals.NewTrace(strings.NewReader(text), "trace.csv", models, classes, arrivals.OfModel(3))
		if err != nil {
			t.Fatal(err)
		}
		got, err := arrivals.Collect(arrivals.OnlyModels(src, []bool{true, true, true, true}), 0)
		if err != nil {
			t.Fatal(err)
		}
		var index []int32
		for _, r := range got {
			index = append(index, r.Model)
		}
		if !slices.Equal(index, want) {
			t.Errorf("%q: %v, want %v", text, index, want)
		}
	}
	src, err := arrivals.NewTrace(strings.NewReader("t_us\n1\n"), "trace.csv", models[:2], arrivals.OfClasses([]string{"gold", ""}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := arrivals.Collect(src, 0)
	if err != nil || len(got) != 1 || got[0].Model != 1 {
		t.Errorf("%+v, %v, want the class without a name", got, err)
	}
}

func TestOnlyLeavesOut(t *testing.T) {
	all := []arrivals.Request{{ArrivedAt: 1}, {ArrivedAt: 2, Model: 1}, {ArrivedAt: 3, Model: 2}, {ArrivedAt: 4, Model: 1}, {ArrivedAt: 5, Model: 7}}
	got, err := arrivals.Collect(arrivals.OnlyModels(arrivals.Slice(all), []bool{false, true, false}), 0)
	if err != nil || !slices.Equal(got, []arrivals.Request{all[1], all[3]}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTraceClassesThatAreNot(t *testing.T) {
	for text, want := range map[string]string{
		"t_us,model,class\n1,a,golt\n": `trace.csv:2:5: class: found the text "golt", expected one of gold, silver` + "\n  hint: did you mean gold?",
		"t_us,model,class\n1,x,gold\n": `trace.csv:2:3: model: found the text "x", expected one of a`,
	} {
		src, err := arrivals.NewTrace(strings.NewReader(text), "trace.csv", []string{"a", "a"}, arrivals.OfClasses([]string{"gold", "silver"}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := arrivals.Collect(src, 0); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	if _, err := arrivals.NewTrace(strings.NewReader("t_us\n1\n"), "trace.csv", []string{"a", "a"}, arrivals.OfClasses([]string{"x"})); err == nil {
		t.Error("one class for two entries is taken")
	}
}

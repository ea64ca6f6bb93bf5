package formats

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats/document"
)

// drawValue draws a value that an option takes.
func drawValue(t *rapid.T, o *document.Option) any {
	switch o.Type {
	case document.FlagOption:
		return rapid.Bool().Draw(t, o.Name)
	case document.WholeOption:
		most := math.MaxInt32
		if o.Max > 0 {
			most = int(o.Max)
		}
		return rapid.IntRange(int(o.Min), most).Draw(t, o.Name)
	case document.NumberOption:
		if len(o.Choices) > 0 && rapid.Bool().Draw(t, o.Name+" as a word") {
			return rapid.SampledFrom(o.Choices).Draw(t, o.Name)
		}
		most := math.MaxFloat64
		switch {
		case o.MaxExcluded:
			most = math.Nextafter(o.Max, o.Min)
		case o.Max > 0:
			most = o.Max
		}
		return rapid.Float64Range(o.Min, most).Draw(t, o.Name)
	case document.DurationOption:
		return time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, o.Name))
	case document.SLOOption:
		switch rapid.IntRange(0, 2).Draw(t, o.Name+" as") {
		case 0:
			return document.SLO{}
		case 1:
			return document.SLO{Duration: time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, o.Name))}
		}
		return document.SLO{Factor: rapid.Float64Range(1e-6, 1e6).Draw(t, o.Name)}
	case document.TextOption:
		return rapid.String().Draw(t, o.Name)
	}
	return rapid.SampledFrom(o.Choices).Draw(t, o.Name)
}

// Every value that an option takes is read from the text that is written of it, and
// every option takes its own default.
func TestOptionTextIsRead(t *testing.T) {
	for _, kind := range PlanKinds() {
		for _, o := range PlanOptions(kind) {
			t.Run(kind+" "+o.Name, func(t *testing.T) {
				if found, _ := o.Wrong(o.Initial()); found != "" && o.Default != nil {
					t.Errorf("the default is refused: %s", found)
				}
				rapid.Check(t, func(t *rapid.T) {
					v := drawValue(t, &o)
					if taken, err := o.Accept(v); err != nil || taken != v {
						t.Fatalf("%v was taken as %v: %v", v, taken, err)
					}
					if got, err := o.Parse(o.Text(v)); err != nil || got != v {
						t.Fatalf("%v is written %q and read %v: %v", v, o.Text(v), got, err)
					}
				})
			})
		}
	}
}

// What a plan keeps of its options comes back from its document, and stands for
// what was chosen.
func TestKeptOptionsAreRead(t *testing.T) {
	for kind, file := range map[string]string{PlanPool: "plan.v2.json", PlanGear: "plan-gear.v2.json"} {
		t.Run(kind, func(t *testing.T) {
			p, err := ReadPlan(compat + file)
			if err != nil {
				t.Fatal(err)
			}
			// What the plan needs of the options that it is checked against.
			least := map[string]int{}
			for i := range p.Deployment {
				for _, l := range p.Deployment[i].Pipelines {
					least["max-partitions"] = max(least["max-partitions"], len(l.Stages))
					least["max-batch"] = max(least["max-batch"], l.Batch)
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				v := document.NewValues(PlanOptions(kind))
				for _, o := range v.Options() {
					if !rapid.Bool().Draw(t, "choose "+o.Name) {
						continue
					}
					value := drawValue(t, o.PlanForm())
					if n, whole := value.(int); whole && n > 0 {
						value = max(n, least[o.Name])
					}
					if err := v.Set(o.Name, value); err != nil {
						t.Fatal(err)
					}
				}
				kept := v.PlanForm()
				if !kept.PlanForm().Equal(kept) {
					t.Fatalf("%v keeps of itself %v", kept, kept.PlanForm())
				}
				for _, o := range v.Options() {
					means := o.Key != "" && o.Retired == "" && (len(o.NeedsOneOf) == 0 || v.WholeNumber(o.NeedsOneOf[0]) > 0)
					if means && kept.Get(o.Name) != v.Get(o.Name) {
						t.Fatalf("--%s is %v, kept as %v", o.Name, v.Get(o.Name), kept.Get(o.Name))
					}
				}
				q := *p
				q.Options = v
				var b bytes.Buffer
				if err := document.Write(&b, &q); err != nil {
					t.Fatal(err)
				}
				again, err := DecodePlan(b.Bytes(), "plan.json")
				if err != nil {
					t.Fatalf("%v\n%s", err, b.Bytes())
				}
				if !again.Options.Equal(kept) {
					t.Fatalf("kept %v, read %v", kept, again.Options)
				}
				for _, o := range kept.Options() {
					if kept.IsChosen(o.Name) != again.Options.IsChosen(o.Name) {
						t.Fatalf("--%s: kept %v, read %v", o.Name, kept, again.Options)
					}
				}
			})
		})
	}
}

// What an option does not take is refused in the same words typed and given, and
// named by the flag.
func TestOptionRefuses(t *testing.T) {
	for _, c := range []struct {
		option, text string
		value        any
	}{
		{"margin", "1", 1.0},
		{"margin", "NaN", math.NaN()},
		{"margin", "+Inf", math.Inf(1)},
		{"effort", "17", 17},
		{"blocks", "-1", -1},
		{"time-limit", "-1s", -time.Second},
	} {
		o := findOption(PlanOptions(PlanPool), c.option)
		if o == nil {
			t.Fatalf("no option %s", c.option)
		}
		_, typed := o.Parse(c.text)
		_, given := o.Accept(c.value)
		if typed == nil || given == nil || typed.Error() != given.Error() {
			t.Errorf("%s: typed %v, given %v", c.text, typed, given)
		}
	}
	slo := findOption(PlanOptions(PlanPool), "slo")
	for _, v := range []document.SLO{{Duration: -1}, {Factor: -2}, {Factor: math.NaN()}, {Duration: 1, Factor: 5}} {
		if _, err := slo.Accept(v); err == nil {
			t.Errorf("%+v was taken", v)
		}
	}
}

// A kind has an option once: of two with one name the second would never be read.
func TestOptionsHaveNamesOfTheirOwn(t *testing.T) {
	for _, kind := range planKinds {
		names, keys := map[string]bool{}, map[string]bool{}
		for _, o := range kind.options {
			if names[o.Name] || o.Key != "" && keys[o.Key] {
				t.Errorf("kind %s has the option %s twice", kind.name, o.Name)
			}
			names[o.Name], keys[o.Key] = true, true
		}
	}
}

// A plan made with an option that is retired stays readable if it has the default, and is refused with the reason otherwise.
func TestRetiredOptionIsReadWithItsDefaultOnly(t *testing.T) {
	text, err := os.ReadFile(compat + "plan.v2.json")
	if err != nil {
		t.Fatal(err)
	}
	with := func(value string) []byte {
		return bytes.Replace(text, []byte(`"max_batch": 8,`), []byte(`"max_batch": 8, "blocks": 2, "blocks_by": "`+value+`",`), 1)
	}
	plan, err := DecodePlan(with("bytes"), "plan.json")
	if err != nil || plan.Options.WholeNumber("blocks") != 2 || plan.Options.IsChosen("blocks-by") {
		t.Errorf("by bytes: %v", err)
	}
	if _, err := DecodePlan(with("time"), "plan.json"); err == nil || !strings.Contains(err.Error(), "options.blocks_by") || !strings.Contains(err.Error(), "cuts by time are no more") {
		t.Errorf("by time: %v", err)
	}
}

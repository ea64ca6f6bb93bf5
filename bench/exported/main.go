package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/engine/ort"
)

// bench holds the flags.
type bench struct {
	plan, third, only string
	budget            time.Duration
}

func main() {
	b := &bench{}
	instrument.Main(&instrument.Instrument{
		Name: "exported",
		Parts: []instrument.Part{
			{Name: "answered", Title: "Models, and how they are answered", Columns: []string{"model", "form", "command", "answer"}, Measure: b.askAll},
			{Name: "driven", Title: "Models at the rates that their plans state", Columns: []string{"model", "requests/s stated", "in time, simulated", "served"}, OnRequest: true, Measure: b.driveAll},
		},
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&b.plan, "plan", "bin/plan", "the program")
			f.StringVar(&b.third, "third-party", "third_party", "folder of the models")
			f.StringVar(&b.only, "only", "", "models whose file has this in its name")
			f.DurationVar(&b.budget, "budget", time.Second, "part answered: time for measuring a model")
		},
		Begin: func(*instrument.Run) (err error) {
			b.plan, err = filepath.Abs(b.plan)
			return err
		},
	})
}

// chosen returns the cases that -only names and that a part is about.
func (b *bench) chosen(is func(c *exported) bool) []exported {
	return slices.DeleteFunc(slices.Clone(cases), func(c exported) bool { return !strings.Contains(c.file, b.only) || !is(&c) })
}

// source is that of all figures.
const source = "models as people exported them"

// askAll takes all models through all steps. Models that do not come through are an error.
func (b *bench) askAll(r *instrument.Run, t *instrument.Table) error {
	eng, err := ort.Open("")
	if err != nil {
		return err
	}
	defer eng.Close()
	answered, batched, refused, crashed, asked, worst := 0, 0, 0, 0, 0, 0.0
	var failed []string
	list := b.chosen(func(*exported) bool { return true })
	for i := range list {
		x, err := b.take(r.Ctx, eng, &list[i])
		if r.Ctx.Err() != nil {
			return r.Ctx.Err()
		}
		if err != nil {
			x.text, x.right = lastLine(err.Error()), false
		}
		x.add(t)
		if x.code == 5 {
			crashed++
		}
		if x.refused != "" {
			asked++
		}
		switch {
		case !x.right:
			failed = append(failed, x.name())
		case x.refused != "":
			refused++
		default:
			answered++
			if x.limit == 0 {
				worst = max(worst, x.difference)
			}
			if x.batch > 1 {
				batched++
			}
		}
	}
	r.AtLeast("exported models whose answers equal ONNX Runtime's", source, 20, "", float64(answered)).Note = fmt.Sprintf("%d files", len(list))
	r.AtLeast("of them in batches above 1, of several samples and of several requests", source, 10, "", float64(batched)).Note = "the others run one request at a time"
	r.AtMost("largest difference of an answer, relative to the larger of 1 and the value", source, differs, "", worst).Note = "without isnet_fp16, whose float16 features differ by .0029 between ONNX Runtime's own optimisation levels"
	r.Exactly("exported files refused with the form and the flag or step that mends it", source, float64(asked), "", float64(refused))
	r.Exactly("model files that end a command with exit code 5", source, 0, "", float64(crashed))
	if failed != nil {
		return fmt.Errorf("%d of %d models did not come through: %s", len(failed), len(list), strings.Join(failed, ", "))
	}
	return nil
}

func (c *exported) name() string { return strings.TrimSuffix(filepath.Base(c.file), ".onnx") }

// add adds the model's row to the table.
func (x *outcome) add(t *instrument.Table) {
	result := ""
	switch {
	case x.right && x.refused == "":
		result = fmt.Sprintf("equal, to %.1g, %s", x.difference, x.batches)
	case x.right:
		result = "refused: " + x.text
		if _, reason, ok := strings.Cut(x.text, "bad ONNX model: "); ok {
			result = "refused: " + reason
		}
	default:
		result = fmt.Sprintf("**%s: %s**", x.stage, x.text)
	}
	command := strings.TrimSpace("plan profile " + filepath.Base(x.file) + " " + strings.Join(x.flags, " "))
	t.Add(x.name(), x.form, "`"+command+"`", strings.ReplaceAll(result, "|", `\|`))
}

// driveAll takes models on the shortest way to the rates that their plans state.
func (b *bench) driveAll(r *instrument.Run, t *instrument.Table) error {
	list := b.chosen(func(c *exported) bool { return c.driven })
	simulated, attained, worst := 0, 0, 1.0
	before := served.LoadAverage()
	for i := range list {
		d, err := b.drive(r.Ctx, &list[i])
		if err != nil {
			return fmt.Errorf("%s: %w", list[i].file, err)
		}
		t.Add(list[i].name(), fmt.Sprintf("%.5g", d.rps), fmt.Sprintf("%.4f", d.simulated), fmt.Sprintf("%.4f", d.served))
		if d.simulated >= leastAttained {
			simulated++
		}
		if d.served >= leastAttained {
			attained++
		}
		worst = min(worst, d.served)
	}
	asked := fmt.Sprint("exactly ", len(list))
	r.Figure(figures.Figure{Claim: "models with .99 in time at the rate that their plan states, simulated", Source: source, Asked: asked, Measured: float64(simulated), Holds: figures.If(simulated == len(list))})
	r.Figure(figures.Figure{Claim: "the same served", Source: source, Asked: asked, Measured: float64(attained), Holds: figures.If(attained == len(list)),
		Note: fmt.Sprintf("at least %.4f; load average %s before the start", worst, before)})
	return nil
}

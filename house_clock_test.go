package inferplan_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Nothing that decides depends on the machine's date: it may step. calendar are the files
// that read or write dates all the same, and for what.
var calendar = map[string]string{
	"executor/completions/answer.go":        "when a request came, shown",
	"executor/completions/batches.go":       "times of batches, kept by durable.Steady",
	"executor/completions/files.go":         "times of files, kept by durable.Steady",
	"executor/completions/models.go":        "when a model was made, shown",
	"executor/completions/record.go":        "the beginnings of ids, for order in the store",
	"executor/durable/bolt/damage.go":       "when requests ended, read",
	"executor/durable/bolt/expire.go":       "when requests ended, kept by durable.Steady",
	"executor/durable/bolt/layout.go":       "when requests ended, written",
	"executor/durable/bolt/records.go":      "when requests ended, written",
	"executor/durable/jetstream/records.go": "when requests ended, by the servers of NATS",
	"executor/durable/jetstream/values.go":  "when requests ended, by the servers of NATS",
	"executor/httplimit/budget.go":          "a moment in the past, which ends reading",
	"executor/load/pacer_linux.go":          "a moment in the past, which ends reading",
	"executor/oip/watch.go":                 "a moment in the past, which ends reading",
	"executor/planfile.go":                  "whether a file has changed",
	"executor/turn/stats.go":                "when a model answered last, shown",
	"engine/worker/process_linux.go":        "a moment in the past, which ends reading",
	"engine/worker/secrets.go":              "certificates",
	"formats/outcomes/outcomes.go":          "times of a run as dates of 1970, for vegeta",
	"profiler/file.go":                      "whether a file has changed",
	"profiler/llmserver/run.go":             "a number for prompts that no cache has",
}

// dates lists the places where a file reads or writes dates.
func dates(tree *ast.File) (out []token.Pos) {
	ast.Inspect(tree, func(n ast.Node) bool {
		x, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, _ := x.X.(*ast.Ident)
		ofTime := from != nil && from.Name == "time"
		switch {
		case ofTime && slices.Contains([]string{"Unix", "UnixMilli", "UnixMicro", "Date", "Parse", "ParseInLocation"}, x.Sel.Name),
			!ofTime && slices.Contains([]string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "ModTime", "AddDate", "NotAfter", "NotBefore", "Weekday", "YearDay"}, x.Sel.Name):
			out = append(out, x.Pos())
		}
		return true
	})
	return out
}

func TestDatesDecideNothing(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		if top, _, _ := strings.Cut(f.path, "/"); !slices.Contains([]string{"executor", "engine", "policy", "sim", "planner", "solver", "profiler", "formats"}, top) || strings.HasSuffix(f.path, ".pb.go") {
			continue
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, f.path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range dates(tree) {
			seen[f.path] = true
			if calendar[f.path] == "" {
				t.Errorf("%v: a date, which may step: take a clock that does not, or say in calendar what it is for", fset.Position(at))
			}
		}
	}
	for path := range calendar {
		if !seen[path] {
			t.Errorf("%s has no dates any more: take it off the list", path)
		}
	}
}

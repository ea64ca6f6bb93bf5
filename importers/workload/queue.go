package workload

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Target is the SLO of the classes.
type Target struct {
	SLO        document.SLO
	Figure     string // latency that the SLO bounds; empty means end to end
	Percentile string // empty means p99
}

// Workload returns a workload of the classes found in a trace, with target t for all of them. Requests without a
// model ask for the given one. In a workload the name of a class is unique, so if several models have a class of
// the same name, the model's name is put before it.
func Workload(classes []Class, model string, t Target) (*formats.Workload, error) {
	llm := &formats.LLM{}
	for i := range classes {
		c := &classes[i]
		c.Model = cmp.Or(c.Model, model)
		if c.Model == "" {
			return nil, fmt.Errorf("name the model that the requests ask for: the trace does not")
		}
		if !slices.Contains(llm.Models, c.Model) {
			llm.Models = append(llm.Models, c.Model)
		}
	}

	// Give each class the target and a name of its own.
	for i := range classes {
		c := &classes[i]
		c.SLO, c.Figure, c.Percentile = t.SLO, t.Figure, t.Percentile
		if len(llm.Models) > 1 {
			c.Models = []string{c.Model}
		}
		if len(classes) > 1 && (c.Class == "" || slices.ContainsFunc(llm.Classes, func(k formats.LLMClass) bool { return k.Class == c.Class })) {
			c.Class = className(c.Model, c.Class)
		}
		llm.Classes = append(llm.Classes, c.LLMClass)
	}
	doc := &formats.Workload{Format: formats.FormatWorkload, Section: llm}
	return doc, doc.Validate()
}

// classSeparators matches what names of models may have, and those of classes not, such as the slash before a
// repository.
var classSeparators = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// className returns the name of a class of one of several models: that of the model, with the class behind if it has a
// name.
func className(model, class string) string {
	return strings.Trim(classSeparators.ReplaceAllString(model+"-"+class, "-"), "-_.")
}

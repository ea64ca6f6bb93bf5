package modelinputs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/literal"
	"inferplan/formats/modelfile"
	"inferplan/formats/usage"
	"inferplan/profiler"
)

// Flags are the flags about the files of models: their inputs, and the libraries that they need.
type Flags struct {
	shapes, values, operators []string
}

// Define defines the flags.
func (o *Flags) Define(f *pflag.FlagSet) {
	f.StringArrayVar(&o.shapes, "shape", nil, "sizes of an input with free dimensions, batch first: [MODEL:]INPUT=1x3x320x320, or the sizes alone for models of one input. Several with : between them, such as 1x32:1x128:1x512, are length buckets: the model is measured at each")
	f.StringArrayVar(&o.values, "input", nil, "value of an input: [MODEL:]INPUT=VALUE, a number, true, false, a JSON array, or a file (.npy, .json). One without dimensions becomes a constant of the model; others are measured with it")
	DefineOperators(f, &o.operators, "library of custom operators that models need, such as libortextensions.so (repeatable). It travels with the profile and the plan, so that serve finds it. Its code runs in this program")
}

// DefineOperators defines the flag --ops, the files of libraries of custom operators.
func DefineOperators(f *pflag.FlagSet, paths *[]string, help string) {
	f.StringArrayVar(paths, "ops", nil, help)
}

// RegisterOperators gives an engine the custom operators of --ops or, without the flag, those of a profile, which
// may be nil.
func (o *Flags) RegisterOperators(eng *ort.Engine, profile *formats.Profile) ([]modelfile.OperatorLibrary, error) {
	list, err := ReadOperators(o.operators)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 && profile != nil {
		for i := range profile.Models {
			list = modelfile.UniqueOperators(list, profile.Models[i].Operators)
		}
	}
	for i := range list {
		if list[i].Path, err = list[i].Find("models"); err != nil {
			return nil, usage.Mark(err)
		}
		if err := eng.UseOperators(list[i].Path); err != nil {
			return nil, usage.Mark(fmt.Errorf("--ops: %w", err))
		}
	}
	return list, nil
}

// ReadOperators reads the files of --ops.
func ReadOperators(paths []string) ([]modelfile.OperatorLibrary, error) {
	list, err := modelfile.ReadOperators(paths)
	if err != nil {
		return nil, usage.Mark(fmt.Errorf("--ops: %w", err))
	}
	return list, nil
}

// splitInput splits MODEL:INPUT=VALUE. The part before a colon is the model only if a model of that name is measured,
// because names of inputs contain colons, too. It returns "" for a model or an input that the text does not name.
func splitInput(text string, models []string) (model, input, value string) {
	input, value, ok := strings.Cut(text, "=")
	if !ok {
		input, value = "", text
	}
	if m, rest, ok := strings.Cut(input, ":"); ok && slices.Contains(models, m) {
		return m, rest, value
	}
	return "", input, value
}

// IsSet reports whether any of the flags has a value.
func (o *Flags) IsSet() bool { return len(o.shapes)+len(o.values)+len(o.operators) > 0 }

// SetModelOptions sets the profiler's options from the flags. The models are those of the options' paths.
func (o *Flags) SetModelOptions(opt *profiler.Options) error {
	models := document.Map(opt.Models, func(path *string) string { return profiler.ModelName(*path) })
	opt.Dims, opt.Values = map[string]map[string][]int64{}, map[string]map[string]graph.Literal{}

	// Read the shapes. An input with several shapes makes buckets.
	// lists has the sizes by model ("" for all) and input.
	lists := map[string]map[string][][]int64{}
	for _, text := range o.shapes {
		model, input, value := splitInput(text, models)
		var list [][]int64
		for part := range strings.SplitSeq(value, ":") {
			dims, err := parseShape(part)
			if err != nil {
				return usage.Errorf("--shape %s: %w", text, err)
			}
			list = append(list, dims)
		}
		if _, twice := lists[model][input]; twice {
			return usage.Errorf("--shape %s: the input has a shape already; several are written 1x32:1x128", text)
		}
		if lists[model] == nil {
			lists[model] = map[string][][]int64{}
		}
		lists[model][input] = list
	}
	if err := o.setBuckets(opt, lists); err != nil {
		return err
	}

	// Read the values.
	for _, text := range o.values {
		model, input, value := splitInput(text, models)
		if input == "" {
			return usage.Errorf("--input %s: expected INPUT=VALUE", text)
		}
		v, err := literal.Parse(value)
		if err != nil {
			return usage.Errorf("--input %s: %w", text, err)
		}
		if opt.Values[model] == nil {
			opt.Values[model] = map[string]graph.Literal{}
		}
		if _, twice := opt.Values[model][input]; twice {
			return usage.Errorf("--input %s: the input has a value already", text)
		}
		opt.Values[model][input] = graph.Literal(v)
	}
	return nil
}

// setBuckets sets the sizes of inputs in the profiler's options. An input with one size has it in all length buckets
// (opt.Dims). Inputs with several sizes make as many buckets (opt.Buckets), and must have equally many. lists has the
// sizes by model and input.
func (o *Flags) setBuckets(opt *profiler.Options, lists map[string]map[string][][]int64) error {
	for model, inputs := range lists {
		n, first := 1, ""
		for _, input := range slices.Sorted(maps.Keys(inputs)) {
			list := inputs[input]
			switch {
			case len(list) == 1:
				if opt.Dims[model] == nil {
					opt.Dims[model] = map[string][]int64{}
				}
				opt.Dims[model][input] = list[0]
			case n == 1:
				n, first = len(list), input
			case n != len(list):
				return usage.Errorf("--shape: %q has %d sizes and %q has %d: they belong together one by one", first, n, input, len(list))
			}
		}
		for k := 0; n > 1 && k < n; k++ {
			dims := map[string][]int64{}
			for input, list := range inputs {
				if len(list) > 1 {
					dims[input] = list[k]
				}
			}
			if opt.Buckets == nil {
				opt.Buckets = map[string][]map[string][]int64{}
			}
			opt.Buckets[model] = append(opt.Buckets[model], dims)
		}
	}
	return nil
}

// parseShape reads sizes such as 1x3x320x320.
func parseShape(text string) ([]int64, error) {
	var dims []int64
	for part := range strings.SplitSeq(strings.ToLower(text), "x") {
		d, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
		if err != nil || d < 1 || d > 1<<31 {
			return nil, usage.Errorf("found the size %q, expected whole numbers with x between them, batch first, such as 1x3x320x320", part)
		}
		dims = append(dims, d)
	}
	return dims, nil
}

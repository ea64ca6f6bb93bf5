package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"inferplan/executor/oip"
	"inferplan/executor/turn"
)

// declaredValue is an output that conditions use: a tensor of a module, with the type that the plan declares for it.
type declared struct {
	name   int32 // of the module
	tensor int   // index of the output
	typ    string
	many   bool // the module runs on several items, so the value is a list
}

// bindValues finds the tensors of the outputs that a module declares: by their names, or the only tensor that its model
// has.
func (s *applications) bindValues(m *module) error {
	if m.step == nil {
		return nil
	}
	app, own := &s.list[m.app], s.c.Services[m.services[0]]
	for _, name := range slices.Sorted(maps.Keys(m.asked.Outputs)) {
		typ := m.asked.Outputs[name]
		i := slices.IndexFunc(own.Outputs, func(t turn.Tensor) bool { return t.Name == name })
		if i < 0 && len(own.Outputs) == 1 {
			i = 0
		}
		if i < 0 {
			return fmt.Errorf("outputs.%s: found no tensor of that name among %v", name, turn.SpecsOf(own.Outputs))
		}
		t := &own.Outputs[i]
		// A text can only be read as a string. With random outputs, no value is read at all.
		if err := readable(typ, t.Shape[1:], t.Datatype); err != nil && !(t.Text && s.c.Options.MadeUp()) {
			return fmt.Errorf("outputs.%s: the tensor %v is no %s: %w", name, turn.SpecsOf(own.Outputs[i : i+1])[0], typ, err)
		}
		app.values[m.asked.Name+"."+name] = declared{name: m.step.Name, tensor: i, typ: typ, many: m.step.Counted || m.step.Each >= 0}
	}
	return nil
}

// listElement returns the type of a list's elements. If a type is no list, it returns false.
func elementOf(typ string) (string, bool) {
	rest, ok := strings.CutPrefix(typ, "list(")
	return strings.TrimSuffix(rest, ")"), ok
}

// checkReadable returns an error if a tensor cannot be read as a type.
func readable(typ string, shape []int64, dt oip.Datatype) error {
	inner, list := elementOf(typ)
	_, deeper := elementOf(inner)
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	switch {
	case list && len(shape) == 0:
		return fmt.Errorf("it has no dimension for a list")
	case list && deeper:
		return readable(inner, shape[1:], dt)
	case list:
		return readable(inner, nil, dt)
	case typ == "string" && dt != oip.Uint8:
		return fmt.Errorf("a text is of bytes (UINT8), ended by a zero or its length")
	case typ != "string" && n != 1:
		return fmt.Errorf("it has %d elements", n)
	}
	return nil
}

// conditionValue returns the value of a name in a condition. If it does not exist, it returns false.
func (f *ensemble) value(req int32, name string) (any, bool) {
	q := f.c.Request(req)
	if q == nil {
		return nil, false
	}
	if v, ok := q.Job.Brought[name]; ok {
		return v, true
	}

	// Otherwise it is an output of the module's latest run: of its task, or a list over its tasks.
	s := &f.made.Apps
	of, ok := s.list[q.Job.Model.Index].values[name]
	if !ok {
		return nil, false
	}
	tasks := s.walk.Latest(req, of.name)
	if !of.many {
		if len(tasks) != 1 {
			return nil, false
		}
		return f.read(tasks[0], &of)
	}
	list := make([]any, 0, len(tasks))
	for _, t := range tasks {
		v, ok := f.read(t, &of)
		if !ok {
			return nil, false
		}
		list = append(list, v)
	}
	return list, true
}

// outputValue returns an output of a task as a value. If it does not exist, it returns false.
func (f *ensemble) read(task int32, of *declared) (any, bool) {
	data := f.made.output(task, of.tensor)
	if data == nil {
		return nil, false
	}
	t := &f.c.Services[f.made.List[task].Service].Outputs[of.tensor]
	return valueOf(of.typ, t.Shape[1:], t.Datatype, data), true
}

// tensorValue returns a tensor's sample as a value of a type. A list of plain values has all elements of the tensor,
// whatever its dimensions.
func valueOf(typ string, shape []int64, dt oip.Datatype, data []byte) any {
	inner, list := elementOf(typ)
	switch _, deeper := elementOf(inner); {
	case list && deeper:
		out := make([]any, 0, shape[0])
		for part := range slices.Chunk(data, max(1, len(data)/max(1, int(shape[0])))) {
			out = append(out, valueOf(inner, shape[1:], dt, part))
		}
		return out
	case list:
		out := make([]any, 0, len(data)/dt.Size())
		for part := range slices.Chunk(data, dt.Size()) {
			out = append(out, valueOf(inner, nil, dt, part))
		}
		return out
	case typ == "string":
		text, _, _ := bytes.Cut(data, []byte{0})
		return strings.ToValidUTF8(string(text), "�")
	}
	return plainValue(typ, oip.Element(dt, data, 0))
}

// plainValue returns an element as a value of a plain type. A number other than 0 is true; fractions are cut off for
// integers.
func plainValue(typ string, v any) any {
	n, exact, isInt := 0.0, int64(0), false
	switch v := v.(type) {
	case bool:
		if v {
			n, exact = 1, 1
		}
		isInt = true
	case int64:
		n, exact, isInt = float64(v), v, true
	case float64:
		n = v
	}
	switch {
	case typ == "bool":
		return n != 0
	case typ == "double":
		return n
	case isInt:
		return exact
	case !(math.Abs(n) < 1<<63):
		return int64(0)
	}
	return int64(n)
}

// Admit checks the parameters of a request against those of its workflow. Other parameters are ignored. Lists come as
// JSON texts, because the protocol has none.
func (f *ensemble) Admit(j *turn.Job, params map[string]oip.Param) *oip.Error {
	m := j.Model
	if len(m.Parameters) == 0 {
		return nil
	}
	j.Brought = make(map[string]any, len(m.Parameters))
	for _, name := range slices.Sorted(maps.Keys(m.Parameters)) {
		given, ok := params[name]
		if !ok {
			return oip.Invalid("parameters."+name, "found nothing, expected the %s that model %q is asked with", m.Parameters[name], m.Name)
		}
		if text, is := given.(string); is && m.Parameters[name] != "string" {
			given = nil
			_ = json.Unmarshal([]byte(text), &given) // text that is no JSON has no type
		}
		v, ok := typed(m.Parameters[name], given)
		if !ok {
			return oip.Invalid("parameters."+name, "found %.40v, expected %s", params[name], m.Parameters[name])
		}
		j.Brought["parameters."+name] = v
	}
	return nil
}

// parameterValue returns a parameter as a value of a type. If it has another type, it returns false.
func typed(typ string, v any) (any, bool) {
	if inner, ok := elementOf(typ); ok {
		list, ok := v.([]any)
		out := make([]any, 0, len(list))
		for _, one := range list {
			x, ok := typed(inner, one)
			if !ok {
				return nil, false
			}
			out = append(out, x)
		}
		return out, ok
	}

	// Plain values.
	switch v := v.(type) {
	case bool:
		return v, typ == "bool"
	case string:
		return v, typ == "string"
	case int64:
		if typ == "double" {
			return float64(v), true
		}
		return v, typ == "int"
	case uint64:
		return typed(typ, float64(v))
	case float64:
		if typ == "int" {
			return int64(v), v == math.Trunc(v) && math.Abs(v) <= 1<<53
		}
		return v, typ == "double"
	}
	return nil, false
}

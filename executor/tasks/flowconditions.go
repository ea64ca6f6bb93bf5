package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
)

// declaredValue is an output that conditions use: a tensor of a module, with the type that the plan declares for it.
type declaredValue struct {
	name      int32 // of the module
	tensor    int   // index of the output
	valueType string
	isList    bool // the module runs on several items, so the value is a list
}

// bindValues finds, for each output that a workflow's module declares, the tensor of its model that holds the value, and
// enters it in the application's table of values, by MODULE.OUTPUT. Conditions (expressions that choose the next modules
// of a request) read it there. The tensor is the one of the same name, or the only one that the model has. It returns an
// error if there is none or its type does not fit. Modules outside a workflow (step nil) declare nothing.
func (s *applications) bindValues(m *moduleBinding) error {
	if m.step == nil {
		return nil
	}
	app, service := &s.apps[m.app], s.core.Services[m.services[0]]
	for _, name := range slices.Sorted(maps.Keys(m.declaration.Outputs)) {
		typ := m.declaration.Outputs[name]
		i := slices.IndexFunc(service.Outputs, func(t turn.Tensor) bool { return t.Name == name })
		if i < 0 && len(service.Outputs) == 1 {
			i = 0
		}
		if i < 0 {
			return fmt.Errorf("outputs.%s: found no tensor of that name among %v", name, turn.SpecsOf(service.Outputs))
		}
		t := &service.Outputs[i]
		// A text can only be read as a string. With random outputs, no value is read at all.
		if err := checkReadable(typ, t.Shape[1:], t.Datatype); err != nil && !(t.Text && s.core.Options.HasRandomOutputs()) {
			return fmt.Errorf("outputs.%s: the tensor %v is no %s: %w", name, turn.SpecsOf(service.Outputs[i : i+1])[0], typ, err)
		}
		app.values[m.declaration.Name+"."+name] = declaredValue{name: m.step.Name, tensor: i, valueType: typ, isList: m.step.CountVaries || m.step.EachOf >= 0}
	}
	return nil
}

// listElement returns the type of a list's elements. If a type is no list, it returns false.
func listElement(typ string) (string, bool) {
	element, ok := strings.CutPrefix(typ, "list(")
	return strings.TrimSuffix(element, ")"), ok
}

// checkReadable returns an error if a tensor of this shape (one sample, without the batch) and data type cannot be read
// as a value of the type typ of a condition, such as int, string or list(int).
func checkReadable(typ string, shape []int64, dt oip.Datatype) error {
	inner, isList := listElement(typ)
	_, nestedList := listElement(inner)
	// Count the elements of the sample.
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	switch {
	case isList && len(shape) == 0:
		return fmt.Errorf("it has no dimension for a list")
	case isList && nestedList:
		return checkReadable(inner, shape[1:], dt)
	case isList:
		return checkReadable(inner, nil, dt)
	case typ == "string" && dt != oip.Uint8:
		return fmt.Errorf("a text is of bytes (UINT8), ended by a zero or its length")
	case typ != "string" && n != 1:
		return fmt.Errorf("it has %d elements", n)
	}
	return nil
}

// conditionValue returns the value of a name in a condition, an expression that chooses the next modules of a workflow's
// request. req is the slot of the request. The name is a parameter of the request, or MODULE.OUTPUT of a module that has
// run. If there is no such value, or not yet, it returns false.
func (f *applicationAnswerer) conditionValue(req int32, name string) (any, bool) {
	q := f.core.Ledger.RequestIn(req)
	if q == nil {
		return nil, false
	}
	if v, ok := q.Job.ConditionValues[name]; ok {
		return v, true
	}

	// Otherwise it is an output of the module's latest run. A module that runs once has one task. One that runs for each
	// item of a list has a task for each, and the value is the list over them.
	s := &f.store.Apps
	declared, ok := s.apps[q.Job.Model.Index].values[name]
	if !ok {
		return nil, false
	}
	tasks := s.control.LatestTasks(req, declared.name)
	if !declared.isList {
		if len(tasks) != 1 {
			return nil, false
		}
		return f.outputValue(tasks[0], &declared)
	}
	list := make([]any, 0, len(tasks))
	for _, t := range tasks {
		v, ok := f.outputValue(t, &declared)
		if !ok {
			return nil, false
		}
		list = append(list, v)
	}
	return list, true
}

// outputValue returns an output of a task as a value. If it does not exist, it returns false.
func (f *applicationAnswerer) outputValue(task int32, declared *declaredValue) (any, bool) {
	data := f.store.outputOf(task, declared.tensor)
	if data == nil {
		return nil, false
	}
	t := &f.core.Services[f.store.Tasks.List[task].Service].Outputs[declared.tensor]
	return tensorValue(declared.valueType, t.Shape[1:], t.Datatype, data), true
}

// tensorValue returns the bytes of one sample of a tensor as a value of a condition's type, such as int or list(double).
// A list of plain values has all elements of the tensor, whatever its dimensions; a list of lists is split along the
// first dimension. A text ends before the first zero byte.
func tensorValue(typ string, shape []int64, dt oip.Datatype, data []byte) any {
	inner, list := listElement(typ)
	switch _, deeper := listElement(inner); {
	case list && deeper:
		out := make([]any, 0, shape[0])
		for part := range slices.Chunk(data, max(1, len(data)/max(1, int(shape[0])))) {
			out = append(out, tensorValue(inner, shape[1:], dt, part))
		}
		return out
	case list:
		out := make([]any, 0, len(data)/dt.Size())
		for part := range slices.Chunk(data, dt.Size()) {
			out = append(out, tensorValue(inner, nil, dt, part))
		}
		return out
	case typ == "string":
		text, _, _ := bytes.Cut(data, []byte{0})
		return strings.ToValidUTF8(string(text), "�")
	}
	return plainValue(typ, oip.Element(dt, data))
}

// plainValue converts an element of a tensor to a plain type of conditions. A number other than 0 is true;
// fractions are cut off for integers, and those beyond 64 bits become 0.
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

// Admit checks the parameters of an arriving request against those that its workflow's conditions read, and stores their
// values in the job. It refuses a request that lacks one or has it in another type. Other parameters are ignored. Lists
// come as JSON texts, because the protocol has none.
func (f *applicationAnswerer) Admit(j *turn.Job, params map[string]oip.Param) *oip.Error {
	m := j.Model
	if len(m.Parameters) == 0 {
		return nil
	}
	j.ConditionValues = make(map[string]any, len(m.Parameters))
	for _, name := range slices.Sorted(maps.Keys(m.Parameters)) {
		value, ok := params[name]
		if !ok {
			return httplimit.Invalid("parameters."+name, "found nothing, expected the %s that model %q is asked with", m.Parameters[name], m.Name)
		}
		if text, isText := value.(string); isText && m.Parameters[name] != "string" {
			value = nil
			_ = json.Unmarshal([]byte(text), &value) // text that is no JSON has no type
		}
		v, ok := parameterValue(m.Parameters[name], value)
		if !ok {
			return httplimit.Invalid("parameters."+name, "found %.40v, expected %s", params[name], m.Parameters[name])
		}
		j.ConditionValues["parameters."+name] = v
	}
	return nil
}

// parameterValue converts a request's parameter to a value of a condition's type. If it has another type, it
// returns false. Numbers from JSON are floats: one that is whole and exact is also an int.
func parameterValue(typ string, v any) (any, bool) {
	if inner, ok := listElement(typ); ok {
		list, ok := v.([]any)
		out := make([]any, 0, len(list))
		for _, element := range list {
			x, ok := parameterValue(inner, element)
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
		return parameterValue(typ, float64(v))
	case float64:
		if typ == "int" {
			return int64(v), v == math.Trunc(v) && math.Abs(v) <= 1<<53
		}
		return v, typ == "double"
	}
	return nil, false
}

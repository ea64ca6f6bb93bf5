package calls

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
	"inferplan/formats/calls"
)

// minMessageBytes is the bound of a message if all tensors of the plan are smaller.
const minMessageBytes = 1 << 20

// maxInputs bounds the inputs of an application or task.
const maxInputs = 128

// readFields reads a JSON object whose members have known names, each at most once. read is called at each value,
// to read it. Errors get the path of the field. seenFields has a bit for each name, so there may be at most 64.
func readFields(c *jsonscan.Cursor, path string, names []string, read func(name string) *httplimit.Error) *httplimit.Error {
	var seenFields uint64
	return c.Object(func(key []byte) *httplimit.Error {
		index := slices.Index(names, string(key))
		if index < 0 {
			return httplimit.Invalid(path+httplimit.Clip(string(key)), "found a field that is not known, expected one of %v", names)
		}
		if seenFields&(1<<index) != 0 {
			return httplimit.Invalid(path+names[index], "given twice")
		}
		seenFields |= 1 << index
		err := read(names[index])
		if err != nil && err.Field == "" {
			err.Field = path + names[index]
		}
		return err
	})
}

// readOpen returns a function that reads from JSON the message by which a program begins a request: the application, a
// time limit in ms (up to 1e9), and its inputs. The function sets o, and returns an error that names the field.
func readOpen(o *calls.Open) func(*jsonscan.Cursor) *httplimit.Error {
	return func(c *jsonscan.Cursor) *httplimit.Error {
		err := readFields(c, "", []string{"application", "timeout_ms", "inputs", "parameters"}, func(name string) (err *httplimit.Error) {
			switch name {
			case "application":
				o.Application, err = readText(c)
			case "timeout_ms":
				o.TimeoutMS, err = readNumber(c, 1e9)
			case "inputs":
				o.Inputs, err = readInputs(c, "inputs")
			case "parameters":
				err = c.Object(func(key []byte) *httplimit.Error {
					return httplimit.Invalid("parameters."+httplimit.Clip(string(key)), "no application declares parameters: they stay with the program")
				})
			}
			return err
		})
		if err == nil && o.Application == "" {
			err = httplimit.Invalid("application", "found nothing, expected the name of an application")
		}
		return err
	}
}

// readEnqueue returns a function that reads from JSON the message by which a program adds tasks (runs of models) to a
// request. The function appends them to e.Tasks, at most calls.MaxTasks, and returns an error that names the field.
func readEnqueue(e *calls.Enqueue) func(*jsonscan.Cursor) *httplimit.Error {
	return func(c *jsonscan.Cursor) *httplimit.Error {
		return readFields(c, "", []string{"tasks"}, func(string) *httplimit.Error {
			return c.Array(func(i int) *httplimit.Error {
				if i == calls.MaxTasks {
					return httplimit.Invalid("tasks", "found more than %d", calls.MaxTasks)
				}
				var t calls.Call
				err := readCall(c, &t, "tasks["+strconv.Itoa(i)+"].")
				e.Tasks = append(e.Tasks, t)
				return err
			})
		})
	}
}

// readCall reads one task into t: the model, its work relative to the usual one (up to 1000), the earlier tasks
// that it reads, and its inputs. path is that of the task, for errors.
func readCall(c *jsonscan.Cursor, t *calls.Call, path string) *httplimit.Error {
	return readFields(c, path, []string{"model", "work", "reads", "inputs"}, func(name string) (err *httplimit.Error) {
		switch name {
		case "model":
			t.Model, err = readText(c)
		case "work":
			t.Work, err = readNumber(c, 1e3)
		case "reads":
			err = c.Array(func(i int) *httplimit.Error {
				if i == calls.MaxTasks {
					return httplimit.Invalid("", "found more than %d tasks", calls.MaxTasks)
				}
				h, err := readText(c)
				t.Reads = append(t.Reads, calls.Handle(h))
				return err
			})
		case "inputs":
			t.Inputs, err = readInputs(c, path+"inputs")
		}
		return err
	})
}

// readInputs reads the inputs of a task or a request, a JSON object of values by name. Each value stays as it was
// sent (json.RawMessage) until its tensor is known. Too many, or one given twice, are an error.
func readInputs(c *jsonscan.Cursor, path string) (map[string]any, *httplimit.Error) {
	values := map[string]any{}
	err := c.Object(func(key []byte) *httplimit.Error {
		if _, repeated := values[string(key)]; repeated {
			return httplimit.Invalid(path+"."+httplimit.Clip(string(key)), "given twice")
		}
		if len(values) == maxInputs {
			return httplimit.TooLarge(path, "more than %d inputs", maxInputs)
		}
		c.Peek()
		start := c.I
		if err := skipValue(c); err != nil {
			err.Field = path + "." + httplimit.Clip(string(key))
			return err
		}
		values[string(key)] = json.RawMessage(c.B[start:c.I])
		return nil
	})
	return values, err
}

// skipValue moves the cursor behind the JSON value of a tensor: a list, a number, a text or a boolean. The value is
// decoded later, when the tensor's type is known.
func skipValue(c *jsonscan.Cursor) (err *httplimit.Error) {
	switch c.Peek() {
	case '[':
		return c.SkipArray(1)
	case '"':
		_, err = c.Str()
	case 't', 'f':
		_, err = c.Boolean()
	default:
		_, _, err = c.Number()
	}
	return err
}

// readText reads a string. It does not alias the message.
func readText(c *jsonscan.Cursor) (string, *httplimit.Error) {
	s, err := c.Str()
	return string(bytes.Clone(s)), err
}

// readNumber reads a number from 0 to maxValue.
func readNumber(c *jsonscan.Cursor, maxValue float64) (float64, *httplimit.Error) {
	digits, _, err := c.Number()
	if err != nil {
		return 0, err
	}
	v, perr := strconv.ParseFloat(string(digits), 64)
	if perr != nil || !(v >= 0 && v <= maxValue) || math.IsInf(v, 0) {
		return 0, httplimit.Invalid("", "found %s, expected a number from 0 to %v", httplimit.Clip(string(digits)), maxValue)
	}
	return v, nil
}

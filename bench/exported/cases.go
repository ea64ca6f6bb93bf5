package main

// exported is a model as somebody exported it.
type exported struct {
	file  string // below third_party
	form  string // what is uncommon about it
	flags []string
	slo   string // default 5s; shorter where runs take microseconds, so that the search has less to simulate
	// batches to measure; default 1,2,4
	batches string
	// limit is the largest difference of an answer, relative to the larger of 1 and the value; default differs.
	limit float64
	// driven is also driven at the rate that its plan states.
	driven bool
	// refused is the text that the message of a refusal must have. If it is empty, the model is answered.
	refused string
}

// differs is the largest difference of an answer where a model says nothing else.
const differs = 1e-4

const files, shipped = "exported/files/", "models/files/"

// vad are the flags of detectors of voice with a state.
func vad(input string) []string {
	return []string{"--shape", "input=" + input, "--shape", "state=2x1x128", "--input", "sr=16000"}
}

var cases = []exported{
	{file: files + "alexa_v0.1.onnx", form: "wake word", driven: true},
	{file: files + "timer_v0.1.onnx", form: "wake word, several classes"},
	{file: files + "hey_mycroft_v0.1.onnx", form: "wake word"},
	{file: files + "hey_rhasspy_v0.1.onnx", form: "wake word"},
	{file: files + "weather_v0.1.onnx", form: "wake word"},
	{file: files + "hello_deepa.onnx", form: "wake word"},
	{file: files + "namaste_deepa.onnx", form: "wake word"},
	{file: files + "need_help_now.onnx", form: "wake word"},
	{file: files + "hey_lookdeep.onnx", form: "wake word"},
	{file: files + "embedding_model.onnx", form: "embedding of sound", driven: true},
	{file: files + "melspectrogram.onnx", form: "free length", flags: []string{"--shape", "input=1x1280"}, driven: true},
	{file: files + "hey_jarvis_v0.1.onnx", form: "If", driven: true},
	{file: files + "silero_vad_legacy.onnx", form: "If, state, scalar", flags: []string{"--shape", "input=1x1536", "--input", "sr=16000"}},
	{file: files + "silero_vad_v5.onnx", form: "If, state, scalar", flags: vad("1x512"), driven: true},
	{file: files + "silero_vad_v6.onnx", form: "If, state, scalar", flags: vad("1x512")},
	{file: files + "silero_vad_16k_op15.onnx", form: "If, state, scalar", flags: []string{"--shape", "input=1x576", "--input", "sr=16000"}},
	{file: files + "silero_vad_op18_ifless.onnx", form: "state, scalar", flags: []string{"--shape", "input=1x576", "--input", "sr=16000"}},
	{file: files + "silero_vad_half.onnx", form: "state, float16 inside", flags: []string{"--shape", "input=1x576"}},
	{file: shipped + "ch_PP-OCRv4_det_infer.onnx", form: "detector, free height and width", flags: []string{"--shape", "x=1x3x320x320"}, driven: true},
	{file: shipped + "ch_PP-OCRv4_rec_infer.onnx", form: "recogniser, free width", flags: []string{"--shape", "x=1x3x48x320"}, driven: true},
	{file: shipped + "ch_ppocr_mobile_v2.0_cls_infer.onnx", form: "classifier, free height and width", flags: []string{"--shape", "x=1x3x48x192"}, driven: true},
	// Its float16 features differ by .0029 between ONNX Runtime's optimisation levels "all" and "none".
	{file: files + "isnet_fp16.onnx", form: "segmenter, float16 inside", flags: []string{"--blocks", "1"}, slo: "90s", batches: "1", limit: 4e-3},
	{file: files + "isnet_quint8.onnx", form: "segmenter, dynamic quantisation to uint8", slo: "90s", batches: "1"},
	{file: files + "mlp.onnx", form: "multilayer perceptron", slo: "100ms"},
	{file: files + "scaler.onnx", form: "preprocessing alone", slo: "100ms"},
	{file: files + "gru.onnx", form: "GRU, state whose batch is not in front", flags: []string{"--shape", "data_input=1x10x3"}, driven: true},
	{file: files + "ndm.onnx", form: "GRU, two inputs, free length", flags: []string{"--shape", "sensor_input=1x10x4"}},
	{file: files + "sklearn_randomforest.onnx", form: "random forest, list of maps", driven: true},
	{file: files + "example_big_fanout.onnx", form: "batch summed away"},
	{file: files + "example_dynamic_axes.onnx", form: "free batch", slo: "100ms"},
	{file: files + "example_float16.onnx", form: "float16", slo: "100ms"},
	{file: files + "example_multitype.onnx", form: "uint8 and float64"},
	{file: files + "example_several_inputs_and_outputs.onnx", form: "three inputs, bfloat16, fixed batch"},
	{file: files + "example_0_dim_output.onnx", form: "empty output", refused: "is empty"},
	{file: files + "example_strings.onnx", form: "texts", refused: "holds texts (strings)"},
	{file: files + "mnist-8-opset13.onnx", form: "Git LFS pointer", refused: "git lfs pull"},
}

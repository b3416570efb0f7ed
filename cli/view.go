package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/util/jsonpath"

	"offramp.dev/offramp/internal/render"
)

// pathWord begins a format that is a JSONPath template.
const pathWord = "jsonpath"

// view is what --output asks for.
type view struct {
	word    string
	formats []string
	path    *jsonpath.JSONPath
}

// addFlag adds -o, --output with the given formats; the first is the default.
func (v *view) addFlag(cmd *cobra.Command, formats ...string) {
	v.word, v.formats = formats[0], formats
	cmd.Flags().VarP(v, "output", "o", "format of the output: "+strings.Join(v.shown(), ", "))
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(v.shown(), cobra.ShellCompDirectiveNoFileComp))
}

func (v *view) shown() []string {
	words := slices.Clone(v.formats)
	if i := slices.Index(words, pathWord); i >= 0 {
		words[i] = pathWord + "=TEMPLATE"
	}
	return words
}

// Type is what help calls the value.
func (v *view) Type() string { return "format" }

func (v *view) String() string { return v.word }

// Set reads a format.
func (v *view) Set(text string) error {
	word, template, templated := strings.Cut(text, "=")
	switch {
	case !slices.Contains(v.formats, word), templated && word != pathWord:
		return fmt.Errorf("%q is none of %s", text, strings.Join(v.shown(), ", "))
	case word != pathWord:
		v.word, v.path = word, nil
		return nil
	case template == "":
		return fmt.Errorf("%s wants a template, such as %s='{.nodes[*].node}'", pathWord, pathWord)
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(braced(template)); err != nil {
		return fmt.Errorf("template %q: %w", template, err)
	}
	v.word, v.path = word, path
	return nil
}

// braced takes ".nodes" for "{.nodes}", as kubectl does.
func braced(template string) string {
	if strings.Contains(template, "{") {
		return template
	}
	return "{." + strings.TrimPrefix(template, ".") + "}"
}

// wide reports whether more is asked for than text shows.
func (v *view) wide() bool { return v.word == "wide" }

// print writes message as the document that was asked for, or else lets text write.
func (v *view) print(w io.Writer, message proto.Message, text func(io.Writer) error) error {
	if v.path != nil {
		return v.printPath(w, message)
	}
	return printOr(w, v.word, message, text)
}

// printPath lets the template speak about the message's JSON form. What the template itself says, line ends for instance, is
// written as it is; what comes from a node is made safe first.
func (v *view) printPath(w io.Writer, message proto.Message) error {
	document, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return fmt.Errorf("encoding as JSON: %w", err)
	}
	var data any
	if err := json.Unmarshal(document, &data); err != nil {
		return fmt.Errorf("reading our own JSON: %w", err)
	}
	var out bytes.Buffer
	if err := v.path.Execute(&out, printable(data)); err != nil {
		return fmt.Errorf("applying the JSONPath template: %w", err)
	}
	if out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		out.WriteByte('\n')
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// printable makes every string of a document safe for a terminal.
func printable(data any) any {
	switch value := data.(type) {
	case string:
		return render.Printable(value)
	case []any:
		for i := range value {
			value[i] = printable(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = printable(value[key])
		}
	}
	return data
}

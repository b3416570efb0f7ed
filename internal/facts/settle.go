package facts

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// settle walks a message: over-long strings and impossible times are errors, enum values of a newer version become the
// enum's unknown value. The model has no recursive message, so the depth is bounded.
func settle(message protoreflect.Message) error {
	switch known := message.Interface().(type) {
	case *timestamppb.Timestamp:
		return known.CheckValid()
	case *durationpb.Duration:
		return known.CheckValid()
	}
	var failed error
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		failed = settleField(message, field, value)
		return failed == nil
	})
	return failed
}

func settleField(message protoreflect.Message, field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	if field.IsList() {
		list := value.List()
		for i := range list.Len() {
			replaced, err := settleValue(field, list.Get(i))
			if err != nil {
				return err
			}
			if replaced.IsValid() {
				list.Set(i, replaced)
			}
		}
		return nil
	}
	replaced, err := settleValue(field, value)
	if err == nil && replaced.IsValid() {
		message.Set(field, replaced)
	}
	return err
}

// settleValue judges one value; a valid result takes its place.
func settleValue(field protoreflect.FieldDescriptor, value protoreflect.Value) (protoreflect.Value, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return protoreflect.Value{}, settle(value.Message())
	case protoreflect.StringKind:
		if len(value.String()) > maxText {
			return protoreflect.Value{}, fmt.Errorf("%s has %d bytes, more than %d", field.Name(), len(value.String()), maxText)
		}
	case protoreflect.EnumKind:
		if field.Enum().Values().ByNumber(value.Enum()) == nil {
			return protoreflect.ValueOfEnum(unknownValue(field.Enum())), nil
		}
	}
	return protoreflect.Value{}, nil
}

// unknownValue is what a value that this version does not know reads as.
func unknownValue(enum protoreflect.EnumDescriptor) protoreflect.EnumNumber {
	if enum.FullName() == offrampv1.SectionState(0).Descriptor().FullName() {
		return offrampv1.SectionState_SECTION_STATE_UNREADABLE.Number()
	}
	for i := range enum.Values().Len() {
		if value := enum.Values().Get(i); strings.HasSuffix(string(value.Name()), "_UNKNOWN") {
			return value.Number()
		}
	}
	return 0
}

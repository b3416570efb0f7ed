package render

import "google.golang.org/protobuf/reflect/protoreflect"

// poisonMessage appends the attack to every string below a message that is set.
func poisonMessage(message protoreflect.Message, attack string) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsList():
			poisonList(message.Get(field).List(), field, attack)
		case field.Kind() == protoreflect.StringKind && field.ContainingOneof() == nil:
			message.Set(field, protoreflect.ValueOfString(message.Get(field).String()+attack))
		case field.Kind() == protoreflect.MessageKind && message.Has(field):
			poisonMessage(message.Mutable(field).Message(), attack)
		}
	}
}

func poisonList(list protoreflect.List, field protoreflect.FieldDescriptor, attack string) {
	for i := range list.Len() {
		switch field.Kind() {
		case protoreflect.StringKind:
			list.Set(i, protoreflect.ValueOfString(list.Get(i).String()+attack))
		case protoreflect.MessageKind:
			poisonMessage(list.Get(i).Message(), attack)
		}
	}
}
